"""PVeRA (arXiv 2512.07703): VeRA whose trained vector is drawn from a learnt distribution while training; its mean is
used afterwards."""

from __future__ import annotations

from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.methods._random_projections import RandomProjections


class Pvera(RandomProjections):
    """Probabilistic vectors around shared random projections."""

    can = Capabilities(quantised=True)

    class Config(RandomProjections.Config):
        """Size and place."""

        dropout: float = Field(
            0.0, serialization_alias="pvera_dropout", ge=0, lt=1, description="dropout before the update"
        )
