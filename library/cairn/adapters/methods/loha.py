"""LoHa (Hyeon-Woo et al. 2021, arXiv 2108.06098): ΔW = (B₁·A₁) ∘ (B₂·A₂), of rank up to rank² with the parameters of two
LoRAs."""

from __future__ import annotations

from pydantic import Field

from cairn.adapters.peft_method import OnLinears, PeftMethod


class Loha(PeftMethod):
    """Hadamard products of low-rank updates."""

    class Config(OnLinears):
        """Size and place."""

        rank: int = Field(8, serialization_alias="r", gt=0, le=256, description="rank of the update")
        alpha: int = Field(8, gt=0, description="strength")
        rank_dropout: float = Field(0.0, ge=0, lt=1, description="share of output rows left out of a step")
        module_dropout: float = Field(0.0, ge=0, lt=1, description="share of layers left out of a step")
