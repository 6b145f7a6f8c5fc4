"""Random samples and rows for tests of packing and shards."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cairn.data.rows import Row, Sample

FIELDS = ("tokens", "labels", "weights", "segments", "positions", "source_bytes")


def make_samples(lengths: Sequence[int], *, seed: int = 0, weighted: bool = False) -> list[Sample]:
    """One sample a length, with tokens and a source of its own."""
    chance = np.random.default_rng(seed)
    return [
        Sample(
            tokens=chance.integers(0, 50_000, length + 1, dtype=np.int32),
            weights=chance.random(length, dtype=np.float32) if weighted else np.ones(length, dtype=np.float32),
            source_bytes=int(chance.integers(0, 10_000)),
            source=f"f.jsonl:{i}",
            subset="Github",
        )
        for i, length in enumerate(lengths)
    ]


def assert_rows_equal(one: Row, other: Row) -> None:
    """Same values and dtypes in every field."""
    for name in FIELDS:
        a, b = getattr(one, name), getattr(other, name)
        assert a.dtype == b.dtype, name
        assert np.array_equal(a, b), name
    assert one.sources == other.sources
