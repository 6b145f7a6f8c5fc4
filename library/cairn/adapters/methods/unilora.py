"""Uni-LoRA (Li et al. 2025, arXiv 2506.00799): all A and B are read from one trained vector, each entry at a place drawn at
random. It does not begin exactly as the base."""

from __future__ import annotations

from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod


class Unilora(PeftMethod):
    """One vector for the whole model."""

    can = Capabilities(layers=("Linear", "Conv1D"), converts="exact")
    starts_as_base = False

    class Config(OnLinears):
        """Size and place."""

        rank: int = Field(4, serialization_alias="r", gt=0, le=256, description="rank of the update")
        size: int = Field(256, serialization_alias="theta_d_length", gt=0, description="length of the vector")
        seed: int = Field(
            42, serialization_alias="proj_seed", ge=0, description="draws the places; part of the adapter"
        )
        dropout: float = Field(
            0.0, serialization_alias="unilora_dropout", ge=0, lt=1, description="dropout before the update"
        )
