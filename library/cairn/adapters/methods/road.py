"""RoAd (Liao and Monz 2024, arXiv 2409.00119): pairs of outputs are rotated and stretched, two to four trained numbers a
pair."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import torch
from pydantic import Field

from cairn.adapters.linear_change import LinearChange
from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod, undivided


class Road(PeftMethod):
    """Rotations of pairs of outputs."""

    can = Capabilities(quantised=True)

    class Config(OnLinears):
        """Size and place."""

        variant: Literal["road_1", "road_2", "road_4"] = Field("road_1", description="numbers an output shares")
        group_size: int = Field(
            64, gt=0, multiple_of=2, description="outputs that are paired with each other; divides them"
        )

    def misfits(self, shapes: Mapping[str, tuple[int, int]]) -> Iterator[str]:
        """Groups that do not divide a layer's outputs."""
        yield from undivided(
            {path: (outputs, 0) for path, (_, outputs) in shapes.items()}, self.config.group_size, "adapter.group_size"
        )

    def change_of(self, layer: Any) -> LinearChange:
        """An output of the first half of a group goes with the one at its place in the second: what the layer makes of
        a one in either half is the output's own scale and the share of the other."""
        layer.base_layer = torch.nn.Identity()
        number, half = torch.arange(layer.out_features), self.config.group_size // 2
        second = number % self.config.group_size >= half
        from_first, from_second = layer((~second).double()), layer(second.double())
        return LinearChange(
            scale=torch.where(second, from_second, from_first),
            share=torch.where(second, from_first, from_second),
            partner=torch.where(second, number - half, number + half),
        )
