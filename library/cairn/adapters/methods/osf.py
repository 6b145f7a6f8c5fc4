"""OSF (Nayak et al. 2025, arXiv 2504.07097): the leading singular directions of W stay, the others are trained, and their
gradient is turned away from those that stay, so that what was learnt before is kept.

An optimizer that scales each number apart, as Adam does, turns the step back a little. Cost: the trained directions
twice, once as they began. Beside others it is a LoRA of twice as many directions as are trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod


class Osf(PeftMethod):
    """Trained minor directions."""

    can = Capabilities()

    class Config(OnLinears):
        """How much stays."""

        kept: float = Field(
            0.5, serialization_alias="effective_rank", gt=0, lt=1, description="share of the directions that stay"
        )

    config: Config

    def inject(self, model: Any, names: list[str]) -> Any:
        """PEFT's own hooks take gradients in the weights' precision alone, and the engine sums those of bf16 in fp32."""
        from peft.tuners.osf.layer import OSFLayer

        adapted = super().inject(model, names)
        for layer in adapted.modules():
            if isinstance(layer, OSFLayer):
                _turn_away(layer)
        return adapted

    def misfits(self, shapes: Mapping[str, tuple[int, int]]) -> Iterator[str]:
        """Layers of which no direction would stay."""
        for path, shape in shapes.items():
            if int(self.config.kept * min(shape)) < 1:
                yield f"adapter.kept={self.config.kept} leaves none of the {min(shape)} directions of {path}"
                return


def _turn_away(layer: Any) -> None:
    """Take what lies in the directions that stay out of the gradients of those that are trained.

    Of a square factor PEFT keeps the trained directions alone, which are all the others.
    """
    layer._detach_hooks()
    trained = layer.osf_svd_params["default"]
    columns, left = _known(layer._osf_U_high, layer._osf_U_low_init)
    rows, right = _known(layer._osf_V_high, layer._osf_V_low_init)
    layer.hook_handles += [
        trained["U_low"].register_hook(lambda gradient: _part(gradient, columns, inside=left)),
        trained["V_low"].register_hook(lambda gradient: _part(gradient.t(), rows.t(), inside=right).t()),
    ]


def _known(stays: Any, began: Any) -> tuple[torch.Tensor, bool]:
    """The directions that are at hand, and whether they are those that are trained."""
    return (stays["default"], False) if "default" in stays else (began["default"], True)


def _part(gradient: torch.Tensor, basis: torch.Tensor, *, inside: bool) -> torch.Tensor:
    """The part of each column of `gradient` in the space of the orthonormal columns of `basis`, or else what is not."""
    q = basis.to(gradient.device, gradient.dtype)
    part = q @ (q.t() @ gradient)
    return part if inside else gradient - part
