"""FourierFT (Gao et al. 2024, arXiv 2405.03003): ΔW is the inverse Fourier transform of a few trained coefficients at
places drawn at random. PEFT begins with random coefficients unless told otherwise; here they begin at zero."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod


class Fourierft(PeftMethod):
    """A few frequencies of the update."""

    can = Capabilities(layers=("Linear", "Conv1D"))
    fixed: ClassVar[dict[str, Any]] = {"init_weights": True}

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
