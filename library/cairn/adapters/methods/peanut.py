"""PEANuT (Zhong et al. 2024, arXiv 2410.01870): ΔW is what a small network makes of the frozen weight, a LoRA with a
non-linearity that sees W."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cairn.adapters.peft_method import OnLinears, PeftMethod


class Peanut(PeftMethod):
    """Weight-aware neural updates."""

    class Config(OnLinears):
        """Size and place."""

        rank: int = Field(32, serialization_alias="r", gt=0, le=256, description="rank of the update")
        depth: int = Field(0, ge=0, le=8, description="hidden layers of the network")
        activation: Literal["relu", "gelu", "silu"] = Field(
            "relu", serialization_alias="act_fn", description="its non-linearity"
        )
        scaling: float = Field(1.0, gt=0, description="strength")
