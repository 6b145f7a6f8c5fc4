"""FRoD: rotations shared by all layers of a shape, found once from the base's own weights, and between them a diagonal
and a sparse matrix of the layer's own (https://doi.org/10.1609/aaai.v40i31.39813). What is shared is saved too."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod


class Frod(PeftMethod):
    """Full-rank updates in a shared basis."""

    can = Capabilities(layers=("Linear", "Conv1D"))
    fixed: ClassVar[dict[str, Any]] = {"progressbar": False}

    class Config(OnLinears):
        """Size and place."""

        sparse_rate: float = Field(
            0.01, gt=0, le=1, description="share of entries beside the diagonal that are trained"
        )
        seed: int = Field(
            0, serialization_alias="projection_prng_key", ge=0, description="draws their places; part of the adapter"
        )
        dropout: float = Field(
            0.0, serialization_alias="frod_dropout", ge=0, lt=1, description="dropout before the update"
        )
