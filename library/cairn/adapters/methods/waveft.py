"""WaveFT (Bilican et al. 2025, arXiv 2505.12532): ΔW is the inverse wavelet transform of a few trained coefficients."""

from __future__ import annotations

from pydantic import Field

from cairn.adapters.methods._coefficients import Coefficients


class Waveft(Coefficients):
    """A few wavelets of the update."""

    class Config(Coefficients.Config):
        """Size and place."""

        frequencies: int = Field(
            2592, serialization_alias="n_frequency", gt=0, description="trained coefficients a layer"
        )
        scaling: float = Field(25.0, gt=0, description="strength")
        wavelet: str = Field(
            "db1", serialization_alias="wavelet_family", description="family, by its name in PyWavelets"
        )
