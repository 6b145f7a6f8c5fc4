"""What a stage is: the record it eats, its Config, and a loss that returns a sum and a weight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from cairn.metrics import Metric
from cairn.plugins import Plugin
from cairn.records import Record


@dataclass(frozen=True)
class LossOutput:
    """`total`: scalar tensor, the sum of weighted losses, always connected to the graph. `weight`: what it is
    counted per. The loop alone divides, by the weight of the global batch. `metrics` are sums and weights too."""

    total: torch.Tensor
    weight: float
    metrics: dict[str, Metric] = field(default_factory=dict)


@dataclass(frozen=True)
class Models:
    """What a loss may call. `policy(**inputs)` is the trained model, behind its engine while training."""

    policy: Callable[..., Any]


class Stage(Plugin):
    """One page each: read the class from top to bottom to know the stage."""

    record: ClassVar[type[Record]]

    def weight(self, batch: Any) -> float:
        """What `loss(batch, …).weight` will be, known before the forward pass: the global batch's weight is summed
        over all micro-batches and workers before the first backward."""
        return float(batch.weights.sum())

    def loss(self, batch: Any, models: Models) -> LossOutput:
        """The loss of one micro-batch (`cairn.data.batch.Batch`)."""
        raise NotImplementedError
