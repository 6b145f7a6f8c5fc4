"""VB-LoRA (Li et al. 2024, arXiv 2405.15179): A and B are put together from the vectors of one bank for the whole model,
each piece a mixture of the best few. It does not begin exactly as the base."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod, undivided


class Vblora(PeftMethod):
    """A bank of shared vectors."""

    can = Capabilities(layers=("Linear", "Conv1D"), converts="exact")
    starts_as_base = False

    class Config(OnLinears):
        """Size and place."""

        rank: int = Field(4, serialization_alias="r", gt=0, le=256, description="rank of the update")
        vectors: int = Field(256, serialization_alias="num_vectors", gt=0, description="vectors in the bank")
        length: int = Field(
            64, serialization_alias="vector_length", gt=0, description="of a vector; divides both sides of every layer"
        )
        topk: int = Field(2, gt=0, description="vectors that a piece mixes")
        dropout: float = Field(
            0.0, serialization_alias="vblora_dropout", ge=0, lt=1, description="dropout before the update"
        )

    def misfits(self, shapes: Mapping[str, tuple[int, int]]) -> Iterator[str]:
        """Vectors whose length does not divide a side of a layer."""
        yield from undivided(shapes, self.config.length, "adapter.length", outputs_too=True)
