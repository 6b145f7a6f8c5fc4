"""PSOFT: ΔW = B·(R − I)·A with A and B from the singular vectors of W, frozen, and a small orthogonal R of rank × rank
trained, with two vectors of scales."""

from __future__ import annotations

from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod


class Psoft(PeftMethod):
    """Rotations in the principal subspace."""

    can = Capabilities(converts="exact")

    class Config(OnLinears):
        """Size and place."""

        rank: int = Field(32, serialization_alias="r", gt=0, le=256, description="dimensions of the subspace")
        alpha: int = Field(32, serialization_alias="psoft_alpha", gt=0, description="strength")
        dropout: float = Field(
            0.0, serialization_alias="psoft_dropout", ge=0, lt=1, description="dropout before the update"
        )
