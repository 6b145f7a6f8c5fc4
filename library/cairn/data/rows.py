"""What text becomes: a sample is one encoded record (or a window of a long one), a row is what a model sees at once.

Labels are shifted already: position t predicts `labels[t]`, and the last label of a window is the first token of
the next, so no token is lost at a border. A weight of 0 means: not trained. There is no magic label.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Sample:
    """`tokens` int32 [n+1]: inputs are tokens[:-1], labels tokens[1:]. `weights` float32 [n]: of each label.

    `source_bytes` are the UTF-8 bytes of the source text that the labels stand for, `source` is "file:line".
    """

    tokens: np.ndarray
    weights: np.ndarray
    source_bytes: int
    source: str
    subset: str

    def __len__(self) -> int:
        """Positions it takes in a row."""
        return len(self.tokens) - 1


@dataclass(frozen=True)
class Row:
    """Samples side by side, isolated by `segments`. All arrays [n]; n is at most the sequence length.

    `tokens`, `labels` int32; `weights` float32; `segments` int32 from 1 upwards; `positions` int32, from 0 in each
    segment; `source_bytes` int64 [segments]; `sources` one "file:line" a segment.
    """

    tokens: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    segments: np.ndarray
    positions: np.ndarray
    source_bytes: np.ndarray
    sources: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.tokens)
