"""What some methods do in training beside descending the gradient: a term in the loss, and a look at what a step did.

DeepSpeed clears the gradients in the optimizer's step, so they are taken before it and handed over after it. A hook
computes from whole fp32 values that are the same on every worker, and so decides the same on each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

Values = Mapping[str, "torch.Tensor"]


class TrainHook(ABC):
    """`watched`: names of the trained parameters whose values and gradients `after_step` gets."""

    watched: tuple[str, ...] = ()

    @abstractmethod
    def penalty(self) -> torch.Tensor:
        """Nats that are added to the mean loss of every step, with a gradient."""

    @abstractmethod
    def after_step(self, step: int, values: Values, gradients: Values) -> dict[str, torch.Tensor]:
        """New values of some parameters after optimizer step `step` (from 1); gradients as they were clipped."""

    @abstractmethod
    def figures(self) -> dict[str, float]:
        """What to log of the last step."""

    def ranks(self) -> dict[str, int]:
        """The rank of each adapted layer by its path, where training changes it."""
        return {}

    @abstractmethod
    def state(self) -> dict[str, torch.Tensor]:
        """What a later start must know."""

    @abstractmethod
    def restore(self, state: Values) -> None:
        """Go on from a `state`."""
