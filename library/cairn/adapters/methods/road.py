"""RoAd (Liao and Monz 2024, arXiv 2409.00119): pairs of outputs are rotated and stretched, two to four trained numbers a
pair."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod, undivided


class Road(PeftMethod):
    """Rotations of pairs of outputs."""

    can = Capabilities(quantised=True, mixed=True)

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
