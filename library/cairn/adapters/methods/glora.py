"""GLoRA (Chavan et al. 2023, arXiv 2306.07967): W' = W + W∘A + B and b' = b + b∘D + E + W·C, each of the five a low-rank
matrix, a vector, one number or nothing."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod


class Glora(PeftMethod):
    """Generalised low-rank updates."""

    can = Capabilities(converts="no")

    class Config(OnLinears):
        """Size and place."""

        rank: int = Field(8, serialization_alias="r", gt=0, le=256, description="rank of the update")
        weights: Literal["lora", "vector", "constant", "none"] = Field(
            "lora", serialization_alias="config_A_B", description="what A and B are"
        )
        prompts: Literal["lora", "vector", "none"] = Field(
            "lora", serialization_alias="config_C", description="what C is"
        )
        biases: Literal["vector", "constant", "none"] = Field(
            "constant", serialization_alias="config_D_E", description="what D and E are"
        )
