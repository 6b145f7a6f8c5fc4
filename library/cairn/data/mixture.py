"""How several datasets become one stream of rows: how many rows of each make an epoch, and in which order they come.

Without weights an epoch is every row once. With weights an epoch holds the datasets in these proportions and ends
either when the first has been seen whole (`first`: no row comes twice) or when the last has (`all`: no row is missed,
smaller datasets come again). What an epoch leaves of a dataset, the next one begins with. Everything follows from the
seed and the epoch, whatever the number of workers; memory is 8 bytes a row of an epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Literal

import numpy as np

from cairn.errors import UserError

Arrangement = Literal["shuffled", "interleaved", "concatenated"]
End = Literal["first", "all"]


@dataclass(frozen=True)
class Mixture:
    """Rows 0 … Σ sizes − 1, those of dataset 0 first. `counts`: rows of each dataset in one epoch."""

    fingerprint: str
    sizes: tuple[int, ...]
    counts: tuple[int, ...]
    arrangement: Arrangement = "shuffled"

    @classmethod
    def of(
        cls,
        sizes: Sequence[int],
        *,
        fingerprint: str,
        weights: Sequence[float | None] = (),
        ends: End = "first",
        arrangement: Arrangement = "shuffled",
    ) -> Mixture:
        """A mixture of datasets of `sizes` rows; a weight of none stands for the dataset's own size."""
        counts = tuple(sizes) if all(weight is None for weight in weights) else _counts(sizes, weights, ends)
        return cls(fingerprint, tuple(sizes), counts, arrangement)

    def __len__(self) -> int:
        """Rows of an epoch."""
        return sum(self.counts)

    def order(self, seed: int, epoch: int) -> np.ndarray:
        """The row indices of an epoch, int64 [len(self)], read only."""
        return _order(self, seed, epoch)


def _counts(sizes: Sequence[int], weights: Sequence[float | None], ends: End) -> tuple[int, ...]:
    shares = [float(size if weight is None else weight) for size, weight in zip(sizes, weights, strict=True)]
    for size, share in zip(sizes, shares, strict=True):
        if size == 0 and share > 0:
            raise UserError("a weighted dataset has no rows", where="data.train", next_step="leave it out")
    epochs = [size / share for size, share in zip(sizes, shares, strict=True) if share > 0]
    length = min(epochs) if ends == "first" else max(epochs)
    return tuple(round(length * share) for share in shares)


@lru_cache(maxsize=2)
def _order(mixture: Mixture, seed: int, epoch: int) -> np.ndarray:
    if mixture.counts == mixture.sizes and mixture.arrangement == "shuffled":
        rows = permutation(sum(mixture.sizes), seed, epoch)
    else:
        starts = [0, *accumulate(mixture.sizes)]
        parts = [
            starts[i] + _next_rows(size, epoch * count, count, seed, i)
            for i, (size, count) in enumerate(zip(mixture.sizes, mixture.counts, strict=True))
        ]
        rows = np.concatenate(parts)
        if mixture.arrangement == "shuffled":
            rows = rows[permutation(len(rows), seed, epoch)]
        elif mixture.arrangement == "interleaved":
            places = np.concatenate([(np.arange(len(part)) + 0.5) / max(len(part), 1) for part in parts])
            rows = rows[np.argsort(places, kind="stable")]
    rows.setflags(write=False)
    return rows


def _next_rows(size: int, begin: int, count: int, seed: int, dataset: int) -> np.ndarray:
    """`count` rows of a dataset's endless stream of permutations, from position `begin` on."""
    if count == 0:
        return np.empty(0, dtype=np.int64)
    first, last = begin // size, (begin + count - 1) // size
    rounds = [permutation(size, seed, turn, dataset + 1) for turn in range(first, last + 1)]
    return np.concatenate(rounds)[begin - first * size :][:count]


def permutation(rows: int, *key: int) -> np.ndarray:
    """A permutation of range(rows), int64; PCG64 seeded by `key`."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key))).permutation(rows)
