"""DeLoRA (Bini et al. 2025, arXiv 2503.18225): a LoRA whose rank-one parts are normalised, so that how far W moves is
bounded by one trained strength a layer."""

from __future__ import annotations

from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod


class Delora(PeftMethod):
    """Bounded low-rank updates."""

    can = Capabilities(converts="exact")

    class Config(OnLinears):
        """Size and place."""

        rank: int = Field(8, serialization_alias="r", gt=0, le=256, description="rank of the update")
        strength: int = Field(
            15, serialization_alias="delora_lambda", gt=0, le=1000, description="the bound at the start (lambda)"
        )
        dropout: float = Field(
            0.0,
            serialization_alias="module_dropout",
            ge=0,
            lt=1,
            description="share of layers whose update is left out of a step",
        )
