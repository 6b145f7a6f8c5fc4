"""Samples to rows: best fit, so that rows are nearly full and nothing is cut.

Best-fit decreasing over one chunk of samples: each, longest first, goes into the row with the least space that still
holds it. Deterministic; ties go to the oldest row. A bit set over free spaces finds that row in O(length / 64), so a
chunk of n samples costs n small steps. Segments keep the samples of a row apart (see `cairn.models.attention`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from cairn.data.rows import Row, Sample


def pack(samples: Iterable[Sample], sequence_length: int) -> Iterator[Row]:
    """Rows of at most `sequence_length` positions that hold every sample once. A longer sample is a ValueError."""
    for group in _best_fit(list(samples), sequence_length):
        yield row_of(group)


def _best_fit(samples: Sequence[Sample], sequence_length: int) -> list[list[Sample]]:
    rows: list[list[Sample]] = []
    by_space: dict[int, deque[int]] = {}
    spaces = 0
    for sample in sorted(samples, key=len, reverse=True):
        size = len(sample)
        if not 0 < size <= sequence_length:
            raise ValueError(f"{sample.source}: a sample of {size} positions, a row has {sequence_length}")
        fitting = spaces >> size
        if fitting:
            space = size + (fitting & -fitting).bit_length() - 1
            row = by_space[space].popleft()
            if not by_space[space]:
                spaces &= ~(1 << space)
            rows[row].append(sample)
        else:
            space, row = sequence_length, len(rows)
            rows.append([sample])
        left = space - size
        if left:
            by_space.setdefault(left, deque()).append(row)
            spaces |= 1 << left
    return rows


def row_of(samples: Sequence[Sample]) -> Row:
    """The samples side by side, as segments 1, 2, …"""
    lengths = [len(sample) for sample in samples]
    return Row(
        tokens=np.concatenate([sample.tokens[:-1] for sample in samples]),
        labels=np.concatenate([sample.tokens[1:] for sample in samples]),
        weights=np.concatenate([sample.weights for sample in samples]),
        segments=np.repeat(np.arange(1, len(samples) + 1, dtype=np.int32), lengths),
        positions=np.concatenate([np.arange(length, dtype=np.int32) for length in lengths]),
        source_bytes=np.array([sample.source_bytes for sample in samples], dtype=np.int64),
        sources=tuple(sample.source for sample in samples),
    )
