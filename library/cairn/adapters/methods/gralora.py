"""GraLoRA (Jung et al. 2025, arXiv 2505.20355): W is cut into k × k blocks, each with a LoRA of its own of rank / k: as many
parameters as one LoRA, a higher rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod, undivided


class Gralora(PeftMethod):
    """Granular low-rank updates."""

    can = Capabilities(layers=("Linear", "Conv1D"))

    class Config(OnLinears):
        """Size and place."""

        rank: int = Field(32, serialization_alias="r", gt=0, le=256, description="rank of the update")
        alpha: int = Field(64, gt=0, description="strength")
        blocks: int = Field(
            2,
            serialization_alias="gralora_k",
            ge=1,
            le=64,
            description="blocks a side (k); divides the rank and both sides of every layer",
        )
        dropout: float = Field(
            0.0, serialization_alias="gralora_dropout", ge=0, lt=1, description="dropout before the update"
        )

    def misfits(self, shapes: Mapping[str, tuple[int, int]]) -> Iterator[str]:
        """Blocks that do not divide the rank or a side of a layer."""
        if self.config.rank % self.config.blocks:
            yield f"adapter.blocks={self.config.blocks} does not divide adapter.rank={self.config.rank}"
        yield from undivided(shapes, self.config.blocks, "adapter.blocks", outputs_too=True)
