"""Samples to rows: best fit, so that rows are nearly full and nothing is cut.

Best-fit decreasing over one chunk of samples: each, longest first, goes into the row with the least space that still
holds it. Deterministic; ties go to the oldest row. A bit set over free spaces finds that row in O(length / 64), so a
chunk of n samples costs n small steps. Segments keep the samples of a row apart (see `cairn.models.attention`); the
answers of a comparison stay together with their prompt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from cairn.data.rows import Row, Sample, Verdicts


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
    """The samples side by side, as segments 1, 2, …; a comparison is its prompt's segment and then its answers'."""
    parts = [part for sample in samples for part in sample.parts]
    return assembled(
        tokens=np.concatenate([part.tokens[:-1] for part in parts]),
        labels=np.concatenate([part.tokens[1:] for part in parts]),
        weights=np.concatenate([part.weights for part in parts]),
        lengths=np.array([len(part.tokens) - 1 for part in parts], dtype=np.int32),
        source_bytes=np.array([part.source_bytes for part in parts], dtype=np.int64),
        sources=tuple(sample.source for sample in samples for _ in sample.parts),
        verdicts=_verdicts(samples),
    )


def assembled(
    *,
    tokens: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray,
    lengths: np.ndarray,
    source_bytes: np.ndarray,
    sources: tuple[str, ...],
    verdicts: Verdicts | None,
) -> Row:
    """A Row from its arrays and the `lengths` int32 [segments] of its segments."""
    starts = np.zeros(len(lengths), dtype=np.int32)
    if verdicts is not None:
        after = verdicts.prefixes > 0
        starts[after] = lengths[verdicts.prefixes[after] - 1]
    return Row(
        tokens=tokens,
        labels=labels,
        weights=weights,
        segments=np.repeat(np.arange(1, len(lengths) + 1, dtype=np.int32), lengths),
        positions=np.concatenate([np.arange(s, s + n, dtype=np.int32) for s, n in zip(starts, lengths, strict=True)]),
        source_bytes=source_bytes,
        sources=sources,
        verdicts=verdicts,
    )


def _verdicts(samples: Sequence[Sample]) -> Verdicts | None:
    if not any(sample.sign or sample.branches for sample in samples):
        return None
    prefixes: list[int] = []
    for sample in samples:
        alone = len(sample.parts) - len(sample.branches)
        prefixes += [0] * alone + [(len(prefixes) + 1) * alone] * len(sample.branches)
    counts = [len(sample.parts) for sample in samples]
    return Verdicts(
        prefixes=np.array(prefixes, dtype=np.int32),
        signs=np.array([part.sign for sample in samples for part in sample.parts], dtype=np.int8),
        margins=np.repeat(np.array([sample.margin for sample in samples], dtype=np.float32), counts),
        importances=np.repeat(np.array([sample.importance for sample in samples], dtype=np.float32), counts),
    )
