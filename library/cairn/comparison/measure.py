"""One model measured by the yardstick: its pairs, its own answers, its documents; and any answers it is asked to score.

Pairs are scored as the preference stages do it (`cairn.stages._answers`), a reward model's by its score. Answers are
sampled at temperature 1, which is the distribution that a KL divergence is of, each prompt with a seed of its own. Cost:
a forward pass over pairs and documents, the answers token by token; one model in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cairn.comparison.yardstick import Yardstick
from cairn.data.batch import Batch, collate
from cairn.errors import ModelError
from cairn.evaluation.aggregate import Aggregate, aggregate
from cairn.evaluation.bits_per_byte import score_documents
from cairn.generation.generator import Generator
from cairn.generation.request import Completion, Request
from cairn.generation.scoring import score
from cairn.models.attention import forward_inputs, sees_prefixes
from cairn.models.scores import HEAD, scores_at
from cairn.models.unwrap import base_of, prompted
from cairn.stages._answers import Pair, answer_logps, answers_of, pair_weights, token_counts

TEMPERATURE = 1.0


@dataclass(frozen=True)
class PairValues:
    """Of every pair: `values` (Σ log p in nats, or a reward model's scores), `counts` of tokens, and its `weights`."""

    values: Pair
    counts: Pair
    weights: torch.Tensor


@dataclass(frozen=True)
class Measured:
    """What a model gives; a reward model has pairs only. `nats`: −log p of each token of its own `answers`, by itself."""

    pairs: PairValues
    answers: tuple[Completion, ...] = ()
    nats: tuple[list[float], ...] = ()
    bits_per_byte: Aggregate | None = None


@torch.no_grad()
def measure(model: Any, tokenizer: Any, yardstick: Yardstick) -> Measured:
    """`model`: a frozen language model, or one of `cairn.models.scores`, bare or under PEFT. ModelError where its
    numbers are not finite."""
    if hasattr(base_of(model), HEAD):
        return Measured(_pair_values(model, tokenizer, yardstick, _scores))
    pairs = _pair_values(model, tokenizer, yardstick, lambda policy, batch: answer_logps(batch, policy))
    answers = _answers(model, tokenizer, yardstick)
    bits = None
    if yardstick.documents:
        bits = aggregate(score_documents(model, tokenizer, yardstick.documents, window=yardstick.window))
    return Measured(pairs, answers, tuple(answer_nats(model, yardstick, answers)), bits)


def answer_nats(model: Any, yardstick: Yardstick, answers: Sequence[Completion]) -> list[list[float]]:
    """−log p of each token of `answers` to the yardstick's prompts, whoever gave them; the end token is one."""
    windows = [
        ((*prompt, *answer.tokens[:-1]), answer.tokens)
        for (_, prompt), answer in zip(yardstick.prompts, answers, strict=True)
    ]
    return score(model, windows)


def _scores(model: Any, batch: Batch) -> torch.Tensor:
    inputs = forward_inputs(batch.tokens, batch.segments, batch.positions, model, prefixes=batch.prefixes)
    return scores_at(model, inputs, answers_of(batch).ends)


def _pair_values(
    model: Any, tokenizer: Any, yardstick: Yardstick, values_of: Callable[[Any, Batch], torch.Tensor]
) -> PairValues:
    found: list[tuple[torch.Tensor, ...]] = []
    for batch in _batches(model, tokenizer, yardstick):
        answers = answers_of(batch)
        values, counts = Pair.of(values_of(model, batch), answers), Pair.of(token_counts(batch), answers)
        parts = (values.chosen, values.rejected, counts.chosen, counts.rejected, pair_weights(batch))
        found.append(tuple(part.double().cpu() for part in parts))
    chosen, rejected, chosen_counts, rejected_counts, weights = map(torch.cat, zip(*found, strict=True))
    if not (chosen.isfinite().all() and rejected.isfinite().all()):
        raise _broken("what it makes of the pairs is not finite")
    return PairValues(Pair(chosen, rejected), Pair(chosen_counts, rejected_counts), weights)


def _batches(model: Any, tokenizer: Any, yardstick: Yardstick) -> Iterator[Batch]:
    """A row of packed pairs at a time."""
    device, shared = next(model.parameters()).device, sees_prefixes(model)
    for row in yardstick.rows:
        yield collate([row], pad_token=tokenizer.pad_token_id, shared=shared).to(device)


def _answers(model: Any, tokenizer: Any, yardstick: Yardstick) -> tuple[Completion, ...]:
    generator = Generator(prompted(model) or base_of(model), tokenizer)
    requests = [
        Request(tokens, max_tokens=yardstick.max_tokens, temperature=TEMPERATURE, seed=number)
        for number, (_, tokens) in enumerate(yardstick.prompts)
    ]
    answers = generator.generate(requests)
    broken = next((answer.error for answer in answers if answer.finish == "error"), None)
    if broken:
        raise _broken(broken)
    return tuple(answers)


def _broken(reason: str) -> ModelError:
    return ModelError(f"a model cannot be measured: {reason}", next_step="check its weights, or give --precision fp32")
