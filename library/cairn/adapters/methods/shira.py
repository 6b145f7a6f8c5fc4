"""SHiRA (Bhardwaj et al. 2024, arXiv 2406.13175): a few entries of W, drawn at random, are trained as they are: as many as a
LoRA of this rank has, and of high rank."""

from __future__ import annotations

from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod


class Shira(PeftMethod):
    """Sparse updates."""

    can = Capabilities(quantised=True)

    class Config(OnLinears):
        """Size and place."""

        rank: int = Field(
            32, serialization_alias="r", gt=0, le=256, description="as many entries as a LoRA of this rank"
        )
        seed: int = Field(0, serialization_alias="random_seed", ge=0, description="draws the entries")
