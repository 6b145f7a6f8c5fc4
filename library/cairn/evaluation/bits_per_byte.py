"""Bits per byte of documents in this process: the same windows, pieces and ledger as over a cluster.

Training scores held-out text with this, the service answers with it, and `cluster/evaluation.py` spreads its parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cairn.evaluation.ledger import Ledger
from cairn.evaluation.pieces import ITEM_TOKENS, Piece, ScoredPiece, items, pieces, position_bucket
from cairn.evaluation.scores import DocumentScore, Totals, bits_per_byte, totals
from cairn.generation.scoring import score
from cairn.records import Document

__all__ = ["DocumentScore", "Totals", "bits_per_byte", "score_documents", "score_item", "totals"]


def score_documents(
    model: Any,
    tokenizer: Any,
    documents: Iterable[Document],
    *,
    window: int,
    batch_tokens: int | None = None,
    item_tokens: int = ITEM_TOKENS,
    ledger: Ledger | None = None,
) -> Iterator[DocumentScore]:
    """Each document's score, in order, while `documents` is read; at most one item is held in memory.

    `window` is in tokens, at most the model's own limit. `batch_tokens` and `item_tokens` change speed and memory only.
    A given `ledger` also collects nats by position.
    """
    ledger = ledger if ledger is not None else Ledger()
    for item in items(pieces(documents, tokenizer, window=window, item_tokens=item_tokens), item_tokens=item_tokens):
        yield from ledger.add(score_item(model, item, batch_tokens=batch_tokens))
    ledger.close()


def score_item(model: Any, item: Sequence[Piece], *, batch_tokens: int | None = None) -> list[ScoredPiece]:
    """All windows of an item in as few forward passes as they fit in."""
    windows = [window for piece in item for window in piece.windows]
    nats = iter(score(model, windows, batch_tokens=batch_tokens))
    return [_scored(piece, [nat for _ in piece.windows for nat in next(nats)]) for piece in item]


def _scored(piece: Piece, nats: Sequence[float]) -> ScoredPiece:
    buckets: dict[int, list[float]] = {}
    for position, nat in enumerate(nats, start=piece.first):
        buckets.setdefault(position_bucket(position), []).append(nat)
    return ScoredPiece(
        file=piece.file,
        line=piece.line,
        subset=piece.subset,
        bytes=piece.bytes,
        tokens=piece.tokens,
        exact=piece.exact,
        first=piece.first,
        scored=len(nats),
        nats=math.fsum(nats),
        by_position={bucket: (math.fsum(part), len(part)) for bucket, part in buckets.items()},
    )
