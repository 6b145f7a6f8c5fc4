"""Comparisons and judgements to samples: what a conversation becomes, said of answers.

A comparison's two conversations begin alike; what they share before the first token that either trains is kept once.
A judgement is its conversation with a verdict. Every answer keeps its last token as an input too, where a reward is
read. What does not fit loses parts of its prompt by the recipe's policy, never of an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import msgspec
import numpy as np

from cairn.data.drops import Dropped, DropReason
from cairn.data.encoding import BATCH, Encoder
from cairn.data.rows import Branch, Sample
from cairn.records import Comparison, Conversation, Judgement, Message

Judged = Comparison | Judgement


def judged_samples(encoder: Encoder, records: Iterable[Judged]) -> Iterator[Sample | Dropped]:
    """Each record's sample or refusal, in order; many are tokenised at once."""
    waiting = iter(records)
    while some := list(islice(waiting, BATCH)):
        found = iter(list(encoder.samples([side for record in some for side in _sides(record)])))
        for record in some:
            sample = _joined(encoder, record, [next(found) for _ in _sides(record)])
            yield encoder.fitted(_sides(record)[0], sample, encode=partial(_shorter, encoder, record))


def _sides(record: Judged) -> list[Conversation]:
    """One conversation an answer."""
    prompt = tuple(msgspec.structs.replace(message, weight=0.0) for message in record.prompt)
    return [
        Conversation(record.source, (*prompt, *answer), record.tools, subset=record.subset)
        for answer in _answers(record)
    ]


def _answers(record: Judged) -> list[tuple[Message, ...]]:
    return [record.chosen, record.rejected] if isinstance(record, Comparison) else [record.answer]


def _shorter(encoder: Encoder, record: Judged, conversation: Conversation) -> Sample | None:
    """The record with as much of the prompt as `conversation`, its first side cut, still has."""
    answer = _answers(record)[0]
    if conversation.messages[-len(answer) :] != answer:
        return None
    cut = msgspec.structs.replace(record, prompt=conversation.messages[: -len(answer)])
    sample = _joined(encoder, cut, list(encoder.samples(_sides(cut))))
    return sample if isinstance(sample, Sample) else None


def _joined(encoder: Encoder, record: Judged, sides: Sequence[Sample | Dropped]) -> Sample | Dropped:
    samples = [side for side in sides if isinstance(side, Sample)]
    if len(samples) < len(sides):
        return next(side for side in sides if isinstance(side, Dropped))
    end = encoder.tokenizer.eos_token_id
    if isinstance(record, Judgement):
        whole = _branch(samples[0], 0, end, 1 if record.good else -1)
        return replace(samples[0], tokens=whole.tokens, weights=whole.weights, sign=whole.sign)
    chosen, rejected = samples
    if np.array_equal(chosen.tokens, rejected.tokens):
        return Dropped(DropReason.NO_PREFERENCE, "both answers become the same tokens")
    common = _common(chosen, rejected)
    start = max(common - 1, 0)
    return Sample(
        tokens=chosen.tokens[:common],
        weights=np.zeros(start, dtype=np.float32),
        source_bytes=0,
        source=chosen.source,
        subset=chosen.subset,
        branches=(_branch(chosen, start, end, 1), _branch(rejected, start, end, -1)),
        margin=record.margin,
        importance=record.weight,
    )


def _branch(side: Sample, start: int, end: int, sign: int) -> Branch:
    """The tokens of `side` from `start` on; the label of its last is `end` and weighs nothing."""
    return Branch(
        tokens=np.append(side.tokens[start:], np.int32(end)),
        weights=np.append(side.weights[start:], np.float32(0)),
        source_bytes=side.source_bytes,
        sign=sign,
    )


def _common(chosen: Sample, rejected: Sample) -> int:
    """How many tokens both begin with, before the first that either trains."""
    until = 1 + min(int(np.flatnonzero(side.weights)[0]) for side in (chosen, rejected))
    differ = np.flatnonzero(chosen.tokens[:until] != rejected.tokens[:until])
    return int(differ[0]) if len(differ) else until
