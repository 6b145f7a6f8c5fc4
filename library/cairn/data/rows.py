"""What text becomes: a sample is one encoded record (or a window of a long one), a row is what a model sees at once.

Labels are shifted already: position t predicts `labels[t]`, and the last label of a window is the first token of
the next, so no token is lost at a border. A weight of 0 means: not trained. There is no magic label.

Answers to compare share what they answer: the prompt is a segment of its own, and each answer is a segment that sees
the prompt's and goes on counting positions there. It begins with the prompt's last token, whose label is its first, and
holds its last token too, for there a reward is read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Sample:
    """`tokens` int32 [n+1]: inputs are tokens[:-1], labels tokens[1:]. `weights` float32 [n]: of each label.

    `source_bytes` are the UTF-8 bytes of the source text that the labels stand for, `source` is "file:line".
    Of a comparison these are the prompt, and `branches` its answers; `sign` is a judgement's verdict (see Branch).
    """

    tokens: np.ndarray
    weights: np.ndarray
    source_bytes: int
    source: str
    subset: str
    sign: int = 0
    branches: tuple[Branch, ...] = ()
    margin: float = 0.0
    importance: float = 1.0

    def __len__(self) -> int:
        """Positions it takes in a row."""
        return len(self.tokens) - 1 + sum(len(branch) for branch in self.branches)

    @property
    def parts(self) -> tuple[Sample | Branch, ...]:
        """What becomes a segment each: itself, unless it is but the token that its branches begin with."""
        return (self, *self.branches) if len(self.tokens) > 1 else self.branches


@dataclass(frozen=True)
class Branch:
    """An answer after a shared prompt; arrays as a Sample's. `sign`: +1 chosen or good, −1 rejected or bad."""

    tokens: np.ndarray
    weights: np.ndarray
    source_bytes: int
    sign: int

    def __len__(self) -> int:
        """Positions it takes in a row."""
        return len(self.tokens) - 1


@dataclass(frozen=True)
class Verdicts:
    """What is said of a row's segments; all arrays [segments].

    `prefixes` int32: the segment that this one goes on from, 0 where it stands alone. `signs` int8: +1 chosen or good,
    −1 rejected or bad, 0 no answer. A pair is a +1 and the −1 after it. `margins`, `importances` float32: a record's own.
    """

    prefixes: np.ndarray
    signs: np.ndarray
    margins: np.ndarray
    importances: np.ndarray


@dataclass(frozen=True)
class Row:
    """Samples side by side, isolated by `segments`. All arrays [n]; n is at most the sequence length.

    `tokens`, `labels` int32; `weights` float32; `segments` int32 from 1 upwards; `positions` int32, from 0 in each
    segment, or from where its prefix ends; `source_bytes` int64 [segments]; `sources` one "file:line" a segment.
    `verdicts` where the segments are answers.
    """

    tokens: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    segments: np.ndarray
    positions: np.ndarray
    source_bytes: np.ndarray
    sources: tuple[str, ...]
    verdicts: Verdicts | None = None

    def __len__(self) -> int:
        return len(self.tokens)
