"""LoKr (Yeh et al. 2023, arXiv 2309.14859): ΔW is a Kronecker product of a small matrix and a low-rank one."""

from __future__ import annotations

from pydantic import Field

from cairn.adapters.peft_method import OnLinears, PeftMethod


class Lokr(PeftMethod):
    """Kronecker products."""

    class Config(OnLinears):
        """Size and place."""

        rank: int = Field(8, serialization_alias="r", gt=0, le=256, description="rank of the update")
        alpha: int = Field(8, gt=0, description="strength")
        factor: int = Field(
            -1,
            serialization_alias="decompose_factor",
            ge=-1,
            description="size of the small matrix; -1: near the square root",
        )
        decompose_both: bool = Field(False, description="the small matrix is of low rank too")
        rank_dropout: float = Field(0.0, ge=0, lt=1, description="share of output rows left out of a step")
        module_dropout: float = Field(0.0, ge=0, lt=1, description="share of layers left out of a step")
