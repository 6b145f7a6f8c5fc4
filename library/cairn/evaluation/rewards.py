"""What a reward model gives to conversations: one score each, read where training read it.

A conversation is laid out as the answer of a judgement (`cairn.data.judging`), by the template that came with the
adapter, and every one has a row of its own, so its score depends on no neighbour. Cost: a forward pass over the
conversations, those of like length together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cairn.data.batch import Batch, collate
from cairn.data.drops import Dropped
from cairn.data.encoding import Encoder
from cairn.data.judging import judged_samples
from cairn.data.packing import row_of
from cairn.data.rows import Sample
from cairn.errors import DataError
from cairn.generation.scoring import ACCELERATOR_TOKENS, CPU_TOKENS, evaluating
from cairn.models.attention import forward_inputs
from cairn.models.scores import scores_at, scores_with
from cairn.models.unwrap import base_of
from cairn.records import Conversation, Judgement

Places = list[int]
"""Whose scores a batch gives, in its order."""


def score_answers(
    model: Any,
    tokenizer: Any,
    conversations: Sequence[Conversation],
    *,
    window: int,
    batch_tokens: int | None = None,
) -> torch.Tensor:
    """The scores of the conversations' last answers, float32 [n], on the CPU.

    model: what `Subject.load(head="score")` gives, bare or under PEFT; tokenizer: that subject's. window: tokens of a
    conversation at most. batch_tokens: of one forward pass; it changes speed and memory only. Raises DataError for a
    conversation that has no answer or does not fit.
    """
    device = next(base_of(model).parameters()).device
    if batch_tokens is None:
        batch_tokens = CPU_TOKENS if device.type == "cpu" else ACCELERATOR_TOKENS
    scores = torch.empty(len(conversations))
    with evaluating(model):
        for places, batch in answer_batches(tokenizer, conversations, window=window, batch_tokens=batch_tokens):
            scores[places] = score_batch(model, batch)
    return scores


def answer_batches(
    tokenizer: Any, conversations: Sequence[Conversation], *, window: int, batch_tokens: int
) -> list[tuple[Places, Batch]]:
    """The conversations as batches of at most `batch_tokens` with their padding (or one row), the longest first."""
    judged = [_judged(conversation) for conversation in conversations]
    found = judged_samples(Encoder(tokenizer, window), judged)
    samples = [_kept(sample, record) for sample, record in zip(found, judged, strict=True)]
    waiting = sorted(range(len(samples)), key=lambda place: -len(samples[place]))
    batches = []
    while waiting:
        size = max(1, batch_tokens // len(samples[waiting[0]]))
        places, waiting = waiting[:size], waiting[size:]
        rows = [row_of([samples[place]]) for place in places]
        batches.append((places, collate(rows, pad_token=tokenizer.pad_token_id)))
    return batches


@torch.no_grad()
def score_batch(model: Any, batch: Batch, *, head: torch.Tensor | None = None) -> torch.Tensor:
    """The scores of a batch's answers, float32 [answers], on the CPU.

    head: [1, width], what reads them where `model` is a language model with the LoRA of a reward adapter on.
    """
    batch = batch.to(next(base_of(model).parameters()).device)
    assert batch.answers is not None, "rows of judgements"
    inputs = forward_inputs(batch.tokens, batch.segments, batch.positions, model)
    ends = batch.answers.ends
    return (scores_at(model, inputs, ends) if head is None else scores_with(model, head, inputs, ends)).cpu()


def _judged(conversation: Conversation) -> Judgement:
    prompt, answer = conversation.messages[:-1], conversation.messages[-1:]
    if not prompt or answer[0].role != "assistant":
        raise DataError(
            "a score is of an assistant's answer to a prompt",
            where=str(conversation.source),
            next_step="end the messages with the answer",
        )
    return Judgement(conversation.source, prompt, answer, good=True, tools=conversation.tools)


def _kept(sample: Sample | Dropped, record: Judgement) -> Sample:
    if isinstance(sample, Dropped):
        raise DataError(f"{sample.reason}: {sample.detail}", where=str(record.source))
    return sample
