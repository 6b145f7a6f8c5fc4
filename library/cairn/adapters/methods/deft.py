"""DEFT (decompositional efficient fine-tuning): W' = (I − P·proj(P)ᵀ)·W + P·R, a subspace of W taken out and written anew,
with P [out, rank] and R [rank, in] trained. R begins so that nothing changes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod


class Deft(PeftMethod):
    """A subspace replaced."""

    can = Capabilities(layers=("Linear", "Conv1D"))

    class Config(OnLinears):
        """Size and place."""

        rank: int = Field(8, serialization_alias="r", gt=0, le=256, description="dimensions that are replaced")
        decomposition: Literal["relu", "qr"] = Field(
            "relu", serialization_alias="decomposition_method", description="qr: an orthogonal projection"
        )
        dropout: float = Field(
            0.0, serialization_alias="deft_dropout", ge=0, lt=1, description="dropout before the update"
        )
