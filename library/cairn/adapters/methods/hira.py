"""HiRA (Huang et al., ICLR 2025): ΔW = W ∘ (B·A), a Hadamard product with the frozen weight, which has a high rank."""

from __future__ import annotations

from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod


class Hira(PeftMethod):
    """High-rank updates by a product with the weight."""

    can = Capabilities(layers=("Linear", "Conv1D"), quantised=True)

    class Config(OnLinears):
        """Size and place."""

        rank: int = Field(32, serialization_alias="r", gt=0, le=256, description="rank of the update")
        dropout: float = Field(
            0.0, serialization_alias="hira_dropout", ge=0, lt=1, description="dropout before the update"
        )
