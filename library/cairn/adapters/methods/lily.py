"""Lily (Zhong et al. 2024, arXiv 2407.09946): layers share their A, and every layer mixes a few shared B by a router, so
that what one layer learns helps the others."""

from __future__ import annotations

from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod


class Lily(PeftMethod):
    """Low-rank updates across layers."""

    can = Capabilities(merges=False, converts="no")

    class Config(OnLinears):
        """Size and place."""

        rank: int = Field(32, serialization_alias="r", gt=0, le=256, description="rank of the update")
        a_stride: int = Field(1, serialization_alias="stride_A", ge=1, description="layers in a row that share an A")
        b_count: int = Field(2, serialization_alias="num_B", ge=1, description="shared B")
        scaling: float = Field(1.0, gt=0, description="strength")
