"""RandLoRA (Albert et al. 2025, arXiv 2502.00987): ΔW is a sum of random, frozen low-rank matrices with trained diagonal
scales, of full rank with the parameters of a LoRA."""

from __future__ import annotations

from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod


class Randlora(PeftMethod):
    """Full rank from random bases."""

    can = Capabilities(layers=("Linear", "Conv1D"), quantised=True)

    class Config(OnLinears):
        """Size and place."""

        rank: int = Field(
            32,
            serialization_alias="r",
            gt=0,
            le=256,
            description="rank of a random basis; a smaller one means more parameters",
        )
        alpha: int = Field(640, serialization_alias="randlora_alpha", gt=0, description="strength")
        seed: int = Field(
            0, serialization_alias="projection_prng_key", ge=0, description="draws the bases; part of the adapter"
        )
        sparse: bool = Field(False, description="bases of −1, 0 and 1")
        dropout: float = Field(
            0.0, serialization_alias="randlora_dropout", ge=0, lt=1, description="dropout before the update"
        )
