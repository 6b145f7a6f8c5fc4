"""OFT (Qiu et al. 2023, arXiv 2306.07280): W is rotated by a block-diagonal orthogonal matrix, W·R, so that the angles
between neurons stay; R comes from a skew-symmetric matrix by Cayley's transform, as a Neumann series of five terms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from cairn.adapters.linear_change import LinearChange, diagonal_blocks
from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod, undivided


class Oft(PeftMethod):
    """Block-diagonal rotations."""

    can = Capabilities(quantised=True)

    class Config(OnLinears):
        """Size and place."""

        block_size: int = Field(
            32,
            serialization_alias="oft_block_size",
            gt=1,
            le=1024,
            description="size of a rotated block; divides the inputs of every layer",
        )
        series: bool = Field(
            True,
            serialization_alias="use_cayley_neumann",
            description="Neumann's series; false: invert, which is slower",
        )
        shared: bool = Field(False, serialization_alias="block_share", description="one block for the whole layer")
        dropout: float = Field(
            0.0, serialization_alias="module_dropout", ge=0, lt=1, description="share of blocks left out of a step"
        )

    def misfits(self, shapes: Mapping[str, tuple[int, int]]) -> Iterator[str]:
        """Blocks that do not divide a layer's inputs."""
        yield from undivided(shapes, self.config.block_size, "adapter.block_size")

    def change_of(self, layer: Any) -> LinearChange:
        """The inputs are turned."""
        return LinearChange(turn=diagonal_blocks(layer.get_delta_weight("default"), self.config.block_size))
