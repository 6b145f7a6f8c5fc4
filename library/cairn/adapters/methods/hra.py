"""HRA (Yuan et al. 2024, arXiv 2405.17484): W is multiplied by a chain of Householder reflections, which begin in pairs
that undo each other."""

from __future__ import annotations

from pydantic import Field

from cairn.adapters.peft_method import OnLinears, PeftMethod


class Hra(PeftMethod):
    """Reflections."""

    class Config(OnLinears):
        """Size and place."""

        rank: int = Field(8, serialization_alias="r", gt=0, le=256, multiple_of=2, description="reflections in a row")
        orthogonal: bool = Field(
            False, serialization_alias="apply_GS", description="keep their directions orthogonal (Gram-Schmidt)"
        )
