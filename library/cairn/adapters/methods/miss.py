"""MiSS (Kang et al. 2024, arXiv 2409.15371): ΔW repeats one small trained matrix over shards of the inputs; begins at zero."""

from __future__ import annotations

from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod


class Miss(PeftMethod):
    """One matrix shared by shards."""

    can = Capabilities(quantised=True, converts="exact")

    class Config(OnLinears):
        """Size and place."""

        rank: int = Field(64, serialization_alias="r", gt=0, le=256, description="rows of the shared matrix")
        dropout: float = Field(
            0.0, serialization_alias="miss_dropout", ge=0, lt=1, description="dropout before the update"
        )
