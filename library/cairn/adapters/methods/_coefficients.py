"""What FourierFT and WaveFT share: a few trained coefficients of a transform of ΔW, at places drawn from a seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod


class Coefficients(PeftMethod):
    """A sparse update in another basis."""

    can = Capabilities(layers=("Linear", "Conv1D"))

    class Config(OnLinears):
        """Size and place."""

        frequencies: int = Field(
            1000, serialization_alias="n_frequency", gt=0, description="trained coefficients a layer"
        )
        scaling: float = Field(150.0, gt=0, description="strength")
        seed: int = Field(
            777, serialization_alias="random_loc_seed", ge=0, description="draws the places; part of the adapter"
        )

    def misfits(self, shapes: Mapping[str, tuple[int, int]]) -> Iterator[str]:
        """More coefficients than a layer has entries."""
        for path, (inputs, outputs) in shapes.items():
            if self.config.frequencies > inputs * outputs:
                yield f"adapter.frequencies={self.config.frequencies} is more than {path} has entries ({inputs * outputs})"
                return
