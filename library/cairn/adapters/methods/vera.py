"""VeRA (Kopiczko et al. 2023, arXiv 2310.11454): ΔW = Λ_b·B·Λ_d·A with A and B random, frozen and shared by all layers;
only two vectors a layer are trained. The projections are saved too, and dwarf them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod


class Vera(PeftMethod):
    """Vectors around shared random projections."""

    can = Capabilities(layers=("Linear", "Conv1D"), quantised=True)

    class Config(OnLinears):
        """Size and place."""

        rank: int = Field(256, serialization_alias="r", gt=0, le=4096, description="rank of the shared projections")
        d_initial: float = Field(0.1, gt=0, description="where the inner vector begins")
        seed: int = Field(
            0, serialization_alias="projection_prng_key", ge=0, description="draws the projections; part of the adapter"
        )
        dropout: float = Field(
            0.0, serialization_alias="vera_dropout", ge=0, lt=1, description="dropout before the update"
        )

    def misfits(self, shapes: Mapping[str, tuple[int, int]]) -> Iterator[str]:
        """The projections may be wider than a layer."""
        yield from ()
