"""Toy comparisons and judgements as batches, and their log-probabilities straight from the definition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tests.tiny import build_tokenizer

from cairn.data.batch import Batch, collate
from cairn.data.encoding import Encoder
from cairn.data.judging import judged_samples
from cairn.data.packing import pack, row_of
from cairn.data.rows import Row, Sample
from cairn.records import Comparison, Judgement, Message, Source

LENGTH = 160


def comparison(line: int, chosen: str, rejected: str, *, margin: float = 0.0, weight: float = 1.0) -> Comparison:
    """A pair of answers to a prompt of its own."""
    asked, better, worse = (
        (Message(role, text),)
        for role, text in (("user", f"Which {line}?"), ("assistant", chosen), ("assistant", rejected))
    )
    return Comparison(Source("pairs.jsonl", line), asked, better, worse, margin, weight)


def judgement(line: int, answer: str, *, good: bool, prompt: str | None = None) -> Judgement:
    """An answer to a prompt of its own, or to `prompt`."""
    asked = (Message("user", prompt or f"Which {line}?"),)
    return Judgement(Source("said.jsonl", line), asked, (Message("assistant", answer),), good)


PAIRS = [
    comparison(1, "yes", "certainly not", margin=0.3),
    comparison(2, "a longer answer it is", "no", weight=0.5),
    comparison(3, "same start, then this", "same start, or that"),
]
SAID = [
    judgement(1, "yes", good=True),
    judgement(2, "a longer answer it is", good=False),
    judgement(3, "maybe", good=True),
    judgement(4, "no", good=False),
]


def samples(records: Sequence[Comparison | Judgement]) -> list[Sample]:
    """The records' samples; all of them fit."""
    found = list(judged_samples(Encoder(build_tokenizer(), LENGTH), records))
    assert all(isinstance(sample, Sample) for sample in found), found
    return [sample for sample in found if isinstance(sample, Sample)]


def rows(records: Sequence[Comparison | Judgement], *, packed: bool = True) -> list[Row]:
    """Packed rows, or one record a row."""
    return list(pack(samples(records), LENGTH)) if packed else [row_of([sample]) for sample in samples(records)]


def batch_of(records: Sequence[Comparison | Judgement], *, packed: bool = True, shared: bool = True) -> Batch:
    """All records in one batch."""
    return collate(rows(records, packed=packed), pad_token=0, shared=shared)


def whole_answers(sample: Sample) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """(tokens int64 [n+1], weights [n]) of each answer with its prompt before it."""
    parts = sample.branches or (sample,)
    prompt = sample.tokens[:-1].tolist() if sample.branches else []
    return [
        (
            torch.tensor(prompt + part.tokens.tolist()),
            torch.tensor([0.0] * len(prompt) + part.weights.tolist(), dtype=torch.float64),
        )
        for part in parts
    ]


def logp_and_count(model: Any, tokens: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Σ weight · log softmax(logits)[label] of one answer alone, and Σ weight."""
    logits = model(input_ids=tokens[None, :-1]).logits[0].double()
    logp = torch.log(logits.exp() / logits.exp().sum(-1, keepdim=True))[torch.arange(len(weights)), tokens[1:]]
    return (weights * logp).sum(), float(weights.sum())
