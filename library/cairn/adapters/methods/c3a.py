"""C3A (Chen et al. 2024, arXiv 2407.19342): ΔW is made of circulant blocks, each the convolution with one trained vector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from pydantic import Field

from cairn.adapters.peft_method import OnLinears, PeftMethod, undivided


class C3a(PeftMethod):
    """Block-circulant updates."""

    fixed: ClassVar[dict[str, Any]] = {"init_weights": True}

    class Config(OnLinears):
        """Size and place."""

        block_size: int = Field(
            64, gt=0, le=8192, description="size of a block; divides inputs and outputs of every layer"
        )

    def misfits(self, shapes: Mapping[str, tuple[int, int]]) -> Iterator[str]:
        """Blocks that do not divide a side of a layer."""
        yield from undivided(shapes, self.config.block_size, "adapter.block_size", outputs_too=True)
