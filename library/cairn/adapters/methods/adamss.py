"""AdaMSS (adaptive multi-subspace tuning): W's singular directions are clustered, and each cluster gets low-rank updates of
its own. Clustering needs scikit-learn, with a fixed seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field

from cairn.adapters.peft_method import OnLinears, PeftMethod


class Adamss(PeftMethod):
    """Updates in clusters of subspaces."""

    class Config(OnLinears):
        """Size and place."""

        rank: int = Field(
            100, serialization_alias="r", gt=0, le=4096, description="singular directions of a layer that are kept"
        )
        subspaces: int = Field(5, serialization_alias="num_subspaces", gt=0, description="clusters")
        subspace_rank: int = Field(1, gt=0, le=256, description="rank of a cluster's update")
        seed: int = Field(0, serialization_alias="random_seed", ge=0, description="of the clustering")

    def misfits(self, shapes: Mapping[str, tuple[int, int]]) -> Iterator[str]:
        """PEFT takes the smaller side of a layer where the rank is above it."""
        yield from ()
