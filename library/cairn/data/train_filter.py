"""Training the filter `quality` from files: documents, excerpts, a tenth of them held out by a hash of their text.

Memory: the excerpts, 1.5 KB a document, and 8 bytes for each of their features, 4 KB a document.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn.data.classifier import Classifier, Training, excerpt
from cairn.data.documents import AUTO, FormatChoice, read_records
from cairn.data.drops import Rejected
from cairn.data.filters.quality import pareto_draw
from cairn.errors import DataError
from cairn.records import Document

HELD_OUT_EVERY = 10
ALPHA = 3.0
DEFAULT = Training()


@dataclass(frozen=True)
class Side:
    """One of the two sets. Of those held out: the share judged right at a score of 0.5, and the share a draw keeps."""

    trained: int
    held_out: int
    short: int
    right: float
    kept: float


@dataclass(frozen=True)
class Report:
    """How the classifier does on documents it has not seen."""

    positive: Side
    negative: Side


def train_filter(
    positive: Sequence[str],
    negative: Sequence[str],
    output: Path,
    *,
    format: FormatChoice = AUTO,
    limit: int | None = None,
    training: Training = DEFAULT,
) -> Report:
    """Write the classifier of the two sets of files to `output`; UserError where one of them has no usable documents."""
    good, bad = (_Texts(files, format, limit) for files in (positive, negative))
    classifier = Classifier.fit(good.learnt, bad.learnt, training)
    output.parent.mkdir(parents=True, exist_ok=True)
    classifier.write(output)
    return Report(good.judged(classifier, good=True), bad.judged(classifier, good=False))


class _Texts:
    """The excerpts of one set."""

    def __init__(self, files: Sequence[str], format: FormatChoice, limit: int | None) -> None:
        self.learnt: list[str] = []
        self.held_out: list[str] = []
        self.short = 0
        for text in _texts(files, format, limit):
            taken = excerpt(text)
            if taken is None:
                self.short += 1
            elif hashlib.blake2b(taken.encode()).digest()[0] % HELD_OUT_EVERY == 0:
                self.held_out.append(taken)
            else:
                self.learnt.append(taken)

    def judged(self, classifier: Classifier, *, good: bool) -> Side:
        scores = classifier.scores(self.held_out).tolist() if self.held_out else []
        right = sum((score > 0.5) == good for score in scores)
        kept = sum(pareto_draw(text, ALPHA) > 1 - score for text, score in zip(self.held_out, scores, strict=True))
        count = max(1, len(scores))
        return Side(len(self.learnt), len(scores), self.short, right / count, kept / count)


def _texts(files: Sequence[str], format: FormatChoice, limit: int | None) -> Iterator[str]:
    for record in read_records(files, format, limit):
        if isinstance(record, Document):
            yield record.text
        elif not isinstance(record, Rejected):
            raise DataError(
                f"documents are needed, this is a {type(record).__name__.lower()}",
                where=str(record.source),
                next_step="give files of plain text, or --format text",
            )
