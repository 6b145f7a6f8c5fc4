"""VeRA (Kopiczko et al. 2023, arXiv 2310.11454): ΔW = Λ_b·B·Λ_d·A with A and B random, frozen and shared by all layers;
only two vectors a layer are trained. The projections are saved too, and dwarf them."""

from __future__ import annotations

from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.methods._random_projections import RandomProjections


class Vera(RandomProjections):
    """Vectors around shared random projections."""

    can = Capabilities(layers=("Linear", "Conv1D"), quantised=True)

    class Config(RandomProjections.Config):
        """Size and place."""

        dropout: float = Field(
            0.0, serialization_alias="vera_dropout", ge=0, lt=1, description="dropout before the update"
        )
