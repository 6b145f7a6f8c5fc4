"""Prompts with answers to other prompts: what KTO's baseline is measured on.

Every judged answer of a global batch lends its prompt to the answer of the next one in it that is to another prompt,
in the order of the batch, so that it does not matter which worker asks, nor how rows are split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cairn.data.packing import pack
from cairn.data.rows import Row, Sample


@dataclass(frozen=True)
class _Judged:
    """`prompt` int32 [p], up to the token whose label is the answer's first; `answer` int32 [a], `weights` float32 [a]."""

    prompt: np.ndarray
    answer: np.ndarray
    weights: np.ndarray
    sign: int
    importance: float
    source: str


def mismatched(rows: Sequence[Row], places: Sequence[int], *, sequence_length: int) -> list[Row]:
    """The answers of `rows[i]` for i in `places`, mismatched and packed; `rows` are those of the global batch.

    An answer is cut where the row ends. One for which there is no other prompt keeps its own and weighs nothing
    (`importances` 0), so that every worker has something to pass through its model.
    """
    found = [[*_judged(row)] for row in rows]
    everything = [item for items in found for item in items]
    starts = np.cumsum([0, *map(len, found)])
    samples = []
    for place in places:
        for at in range(starts[place], starts[place + 1]):
            samples.append(_lent(everything[at], everything[at + 1 :] + everything[:at], sequence_length))
    return list(pack(samples, sequence_length))


def _lent(own: _Judged, others: Sequence[_Judged], sequence_length: int) -> Sample:
    other = next((item for item in others if not np.array_equal(item.prompt, own.prompt)), None)
    lent = other or own
    room = max(1, sequence_length + 1 - len(own.prompt))
    return Sample(
        tokens=np.concatenate([own.prompt, lent.answer[:room]]),
        weights=np.concatenate([np.zeros(len(own.prompt) - 1, dtype=np.float32), lent.weights[:room]]),
        source_bytes=0,
        source=own.source,
        subset="",
        sign=own.sign,
        importance=0.0 if other is None else own.importance,
    )


def _judged(row: Row) -> list[_Judged]:
    assert row.verdicts is not None, "rows of judgements"
    items = []
    ends = np.flatnonzero(np.diff(row.segments, append=-1)) + 1
    for segment, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        weights = row.weights[start:end]
        first = int(np.flatnonzero(weights)[0])
        items.append(
            _Judged(
                prompt=row.tokens[start : start + first + 1],
                answer=row.labels[start + first : end - 1],
                weights=weights[first:-1],
                sign=int(row.verdicts.signs[segment]),
                importance=float(row.verdicts.importances[segment]),
                source=row.sources[segment],
            )
        )
    return items
