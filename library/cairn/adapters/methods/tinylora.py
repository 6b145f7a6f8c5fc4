"""TinyLoRA (arXiv 2602.04118): a handful of numbers, spread by frozen random matrices over the singular directions of W."""

from __future__ import annotations

from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod


class Tinylora(PeftMethod):
    """Next to no parameters."""

    can = Capabilities(layers=("Linear", "Conv1D"), converts="exact")

    class Config(OnLinears):
        """Size and place."""

        rank: int = Field(2, serialization_alias="r", gt=0, le=256, description="singular directions of a layer")
        size: int = Field(
            64, serialization_alias="u", gt=0, le=4096, description="trained numbers of a group of layers"
        )
        tying: float = Field(
            0.0, serialization_alias="weight_tying", ge=0, le=1, description="share of layers that share theirs"
        )
        seed: int = Field(
            42, serialization_alias="projection_seed", ge=0, description="draws the matrices; part of the adapter"
        )
        dropout: float = Field(
            0.0, serialization_alias="tinylora_dropout", ge=0, lt=1, description="dropout before the update"
        )
