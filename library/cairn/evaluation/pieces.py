"""Documents become pieces, pieces become items of like cost; an item is what one worker scores at a time.

A piece is a run of windows of one document, so a book is spread over many workers; an item is a group of pieces, so
short documents share a forward pass. A piece names the range of target tokens that it covers: that is what the ledger
checks. Tokens come from the model's tokenizer without special tokens; the bytes are those of the source text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from cairn.errors import DataError, ModelError
from cairn.evaluation.windows import rolling_windows
from cairn.records import Document

ITEM_TOKENS = 8192
"""Inputs of an item: some seconds of work on a CPU, and enough windows to pack rows full."""


class Piece(msgspec.Struct, frozen=True):
    """Windows of the document at (`file`, `line`); the first target is its token number `first` of `tokens`."""

    file: str
    line: int
    subset: str
    bytes: int
    tokens: int
    exact: bool
    first: int
    windows: list[tuple[list[int], list[int]]]

    @property
    def cost(self) -> int:
        """Inputs of all its windows."""
        return sum(len(inputs) for inputs, _ in self.windows)


class ScoredPiece(msgspec.Struct, frozen=True):
    """A piece without its windows, with the nats of its `scored` targets, also by position bucket."""

    file: str
    line: int
    subset: str
    bytes: int
    tokens: int
    exact: bool
    first: int
    scored: int
    nats: float
    by_position: dict[int, tuple[float, int]]


def prefix_token(tokenizer: Any) -> int:
    """The context of a document's first token: the BOS token, else EOS (as lm-evaluation-harness chooses)."""
    for token in (tokenizer.bos_token_id, tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    raise ModelError(
        "the tokenizer has neither a BOS nor an EOS token", next_step="set one of them in tokenizer_config.json"
    )


def pieces(
    documents: Iterable[Document], tokenizer: Any, *, window: int, item_tokens: int = ITEM_TOKENS
) -> Iterator[Piece]:
    """The pieces of each document in turn, of at most `item_tokens` inputs (or one window).

    An empty document is one piece without windows, so that it is counted.
    """
    prefix = prefix_token(tokenizer)
    for document in documents:
        tokens = tokenizer(document.text, add_special_tokens=False, verbose=False)["input_ids"]
        byte_count = _byte_count(document)
        decoded = tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        first = 0
        for run in _runs(rolling_windows(tokens, prefix_token=prefix, window=window), item_tokens):
            yield Piece(
                file=document.source.file,
                line=document.source.line,
                subset=document.subset,
                bytes=byte_count,
                tokens=len(tokens),
                exact=decoded == document.text,
                first=first,
                windows=run,
            )
            first += sum(len(targets) for _, targets in run)


def items(found: Iterable[Piece], *, item_tokens: int = ITEM_TOKENS) -> Iterator[list[Piece]]:
    """Pieces in groups of at most `item_tokens` inputs (or one piece), in order."""
    item: list[Piece] = []
    cost = 0
    for piece in found:
        if item and cost + piece.cost > item_tokens:
            yield item
            item, cost = [], 0
        item.append(piece)
        cost += piece.cost
    if item:
        yield item


def position_bucket(position: int) -> int:
    """0 for a document's first token, else b with 2^(b−1) ≤ position < 2^b."""
    return position.bit_length()


def _runs(windows: Iterable[Any], item_tokens: int) -> Iterator[list[tuple[list[int], list[int]]]]:
    run: list[tuple[list[int], list[int]]] = []
    cost = 0
    empty = True
    for inputs, targets in windows:
        if run and cost + len(inputs) > item_tokens:
            yield run
            run, cost, empty = [], 0, False
        run.append((inputs, targets))
        cost += len(inputs)
    if run or empty:
        yield run


def _byte_count(document: Document) -> int:
    try:
        return len(document.text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise DataError(
            f"text that is not valid Unicode: {error.reason} at character {error.start}",
            where=str(document.source),
            next_step="repair or remove the line",
        ) from None
