"""What scoring yields: one line a document, all of it sums. The only place that divides nats by bytes.

BPB = Σ nats / (ln 2 · Σ UTF-8 bytes of the source text): the Pile paper, section 3.1, with the bytes of the documents
scored in place of its constant tokens-per-byte ratio.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from cairn.errors import CairnError, DataError

LN_2 = math.log(2)


@dataclass(frozen=True)
class DocumentScore:
    """One document: where it stands, its UTF-8 `bytes`, its `tokens`, and the `nats` of all of them.

    `exact`: decoding the tokens gives the text back; where not, the bytes are still the source's.
    """

    file: str
    line: int
    subset: str
    bytes: int
    tokens: int
    nats: float
    exact: bool = True


@dataclass(frozen=True)
class Totals:
    """Sums over documents."""

    nats: float
    bytes: int
    tokens: int
    documents: int

    @property
    def bits_per_byte(self) -> float | None:
        """None where there is not one byte."""
        return self.nats / (LN_2 * self.bytes) if self.bytes else None

    @property
    def byte_perplexity(self) -> float | None:
        """2^BPB."""
        bpb = self.bits_per_byte
        return None if bpb is None else 2.0**bpb

    @property
    def nats_per_token(self) -> float | None:
        """The mean loss of a token; compares only models of one tokenizer."""
        return self.nats / self.tokens if self.tokens else None


def totals(scores: Iterable[DocumentScore]) -> Totals:
    """The sums; nats are added exactly (fsum), so the order of the documents does not matter."""
    scores = list(scores)
    return Totals(
        nats=math.fsum(score.nats for score in scores),
        bytes=sum(score.bytes for score in scores),
        tokens=sum(score.tokens for score in scores),
        documents=len(scores),
    )


def bits_per_byte(scores: Iterable[DocumentScore]) -> float:
    """Σ nats / (ln 2 · Σ bytes) over all documents.

    DataError where there is no text at all; CairnError where the sums cannot be true (no nats for tokens, or not a
    number), which means a broken model.
    """
    found = totals(scores)
    if found.bits_per_byte is None or not found.tokens:
        raise DataError(
            f"no text to score in {found.documents} documents", next_step="check the files, subsets and limit"
        )
    if not (math.isfinite(found.nats) and found.nats > 0):
        raise CairnError(
            f"{found.tokens} tokens scored at {found.nats} nats in total",
            next_step="the model is broken: check its weights and precision",
        )
    return found.bits_per_byte
