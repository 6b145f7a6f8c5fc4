"""The ledger: scored pieces in any order become whole documents, or a loud error.

Workers answer out of order, and a worker that died has its item scored anew. Each target token of each document must be
scored exactly once: a piece that overlaps another, a document that never fills, a count or a sum that cannot be true,
all of it stops the evaluation, since a wrong number looks like any other number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from cairn.errors import CairnError
from cairn.evaluation.pieces import ScoredPiece
from cairn.evaluation.scores import DocumentScore
from cairn.metrics import Metric

BROKEN_MODEL = "the model is broken: check its weights and precision"
LOST = "this is a fault of Cairn: report it with the command that was run"


class Ledger:
    """Joins pieces. `by_position`: nats and tokens by position bucket, over everything added."""

    def __init__(self) -> None:
        self.by_position: dict[int, Metric] = {}
        self._open: dict[tuple[str, int], list[ScoredPiece]] = {}
        self._done: set[tuple[str, int]] = set()

    def add(self, pieces: Iterable[ScoredPiece]) -> Iterator[DocumentScore]:
        """Enter pieces; yields each document that became whole."""
        for piece in pieces:
            _check(piece)
            key = (piece.file, piece.line)
            if key in self._done:
                raise CairnError("this document came twice", where=f"{piece.file}:{piece.line}", next_step=LOST)
            for bucket, (nats, tokens) in piece.by_position.items():
                self.by_position[bucket] = self.by_position.get(bucket, Metric(0.0, 0)) + Metric(nats, tokens)
            parts = self._open.setdefault(key, [])
            parts.append(piece)
            if sum(part.scored for part in parts) >= piece.tokens:
                del self._open[key]
                self._done.add(key)
                yield _whole(parts)

    def close(self) -> None:
        """CairnError where a document is still missing tokens."""
        for (file, line), parts in self._open.items():
            scored = sum(part.scored for part in parts)
            raise CairnError(
                f"{scored} of {parts[0].tokens} tokens were scored ({len(self._open)} documents are not whole)",
                where=f"{file}:{line}",
                next_step=LOST,
            )


def _check(piece: ScoredPiece) -> None:
    where = f"{piece.file}:{piece.line}"
    if not math.isfinite(piece.nats):
        raise CairnError(f"{piece.scored} tokens scored at {piece.nats} nats", where=where, next_step=BROKEN_MODEL)
    if piece.bytes and not piece.tokens:
        raise CairnError(
            f"{piece.bytes} bytes of text became no token", where=where, next_step="the tokenizer drops this text"
        )
    if piece.tokens and not piece.scored:
        raise CairnError(f"none of {piece.tokens} tokens was scored", where=where, next_step=LOST)


def _whole(parts: list[ScoredPiece]) -> DocumentScore:
    parts = sorted(parts, key=lambda part: part.first)
    expected = 0
    for part in parts:
        if part.first != expected:
            raise CairnError(
                f"token {min(part.first, expected)} was scored twice or not at all",
                where=f"{part.file}:{part.line}",
                next_step=LOST,
            )
        expected += part.scored
    head = parts[0]
    if expected != head.tokens:
        raise CairnError(f"{expected} tokens scored of {head.tokens}", where=f"{head.file}:{head.line}", next_step=LOST)
    nats = math.fsum(part.nats for part in parts)
    return DocumentScore(head.file, head.line, head.subset, head.bytes, head.tokens, nats, head.exact)
