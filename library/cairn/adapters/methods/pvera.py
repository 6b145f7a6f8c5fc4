"""PVeRA (arXiv 2512.07703): VeRA whose trained vector is drawn from a learnt distribution while training; its mean is
used afterwards."""

from __future__ import annotations

from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod


class Pvera(PeftMethod):
    """Probabilistic vectors around shared random projections."""

    can = Capabilities(quantised=True)

    class Config(OnLinears):
        """Size and place."""

        rank: int = Field(256, serialization_alias="r", gt=0, le=4096, description="rank of the shared projections")
        d_initial: float = Field(0.1, gt=0, description="where the inner vector begins")
        seed: int = Field(
            0, serialization_alias="projection_prng_key", ge=0, description="draws the projections; part of the adapter"
        )
        dropout: float = Field(
            0.0, serialization_alias="pvera_dropout", ge=0, lt=1, description="dropout before the update"
        )
