"""Bits per byte of documents in this process: the same windows, pieces and ledger as over a cluster.

Training scores held-out text with this, the service answers with it, and `cluster/evaluation.py` spreads its parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from cairn.evaluation.ledger import Ledger
from cairn.evaluation.pieces import ITEM_TOKENS, items, pieces, score_item
from cairn.evaluation.scores import DocumentScore, Totals, bits_per_byte, totals
from cairn.records import Document

__all__ = ["DocumentScore", "Totals", "bits_per_byte", "score_documents", "totals"]


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
