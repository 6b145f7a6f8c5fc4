"""WaveFT (Bilican et al. 2025, arXiv 2505.12532): ΔW is the inverse wavelet transform of a few trained coefficients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod


class Waveft(PeftMethod):
    """A few wavelets of the update."""

    can = Capabilities(layers=("Linear", "Conv1D"))

    class Config(OnLinears):
        """Size and place."""

        frequencies: int = Field(
            2592, serialization_alias="n_frequency", gt=0, description="trained coefficients a layer"
        )
        scaling: float = Field(25.0, gt=0, description="strength")
        wavelet: str = Field(
            "db1", serialization_alias="wavelet_family", description="family, by its name in PyWavelets"
        )
        seed: int = Field(
            777, serialization_alias="random_loc_seed", ge=0, description="draws the places; part of the adapter"
        )

    def misfits(self, shapes: Mapping[str, tuple[int, int]]) -> Iterator[str]:
        """More coefficients than a layer has entries."""
        for path, (inputs, outputs) in shapes.items():
            if self.config.frequencies > inputs * outputs:
                yield f"adapter.frequencies={self.config.frequencies} is more than {path} has entries ({inputs * outputs})"
                return
