"""What VeRA and PVeRA share: random projections, drawn once from a seed for all layers and saved with the adapter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field

from cairn.adapters.peft_method import OnLinears, PeftMethod


class RandomProjections(PeftMethod):
    """Vectors are trained around projections that are not."""

    class Config(OnLinears):
        """Size and place."""

        rank: int = Field(256, serialization_alias="r", gt=0, le=4096, description="rank of the shared projections")
        d_initial: float = Field(0.1, gt=0, description="where the inner vector begins")
        seed: int = Field(
            0, serialization_alias="projection_prng_key", ge=0, description="draws the projections; part of the adapter"
        )

    def misfits(self, shapes: Mapping[str, tuple[int, int]]) -> Iterator[str]:
        """None: the projections may be wider than a layer."""
        yield from ()
