"""What the stages of preference share: the log-probabilities of a batch's answers, taken as pairs.

One forward pass gives both answers of a pair, after one reading of their prompt where the model allows it. Only the
answers' tokens get logits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from cairn.data.batch import Answers, Batch
from cairn.losses.answers import answer_sums, desensitised_weights
from cairn.losses.cross_entropy import token_nll
from cairn.losses.ranking import order_metrics
from cairn.metrics import Metric
from cairn.models.attention import forward_inputs
from cairn.models.head import losses_at
from cairn.records import Comparison
from cairn.stages.base import LossOutput, Models, Stage


@dataclass(frozen=True)
class Pair:
    """One figure of each answer of every pair: `chosen`, `rejected` [pairs]."""

    chosen: torch.Tensor
    rejected: torch.Tensor

    @classmethod
    def of(cls, values: torch.Tensor, answers: Answers) -> Pair:
        """`values` [answers], parted."""
        return cls(values[answers.signs > 0], values[answers.signs < 0])

    def __sub__(self, other: Pair) -> Pair:
        return Pair(self.chosen - other.chosen, self.rejected - other.rejected)

    def __truediv__(self, other: Pair) -> Pair:
        return Pair(self.chosen / other.chosen, self.rejected / other.rejected)

    def __rmul__(self, factor: float) -> Pair:
        return Pair(factor * self.chosen, factor * self.rejected)


class PairStage(Stage):
    """A stage of pairs that needs no reference: `compare` is all there is to it."""

    record = Comparison

    def weight(self, batch: Batch) -> float:
        """Pairs, a ranking's counting 1 together."""
        return float(pair_weights(batch).sum())

    def loss(self, batch: Batch, models: Models) -> LossOutput:
        """Σ over the pairs."""
        answers = answers_of(batch)
        counts = Pair.of(token_counts(batch), answers)
        logps = Pair.of(answer_logps(batch, models.policy), answers)
        losses, rewards = self.compare(logps, counts)
        return pair_output(batch, losses, preference_metrics(batch, rewards, logps))

    def compare(self, logps: Pair, counts: Pair) -> tuple[torch.Tensor, Pair]:
        """The loss of every pair and the rewards of its answers, in nats; `logps` are sums over `counts` tokens."""
        raise NotImplementedError


def pair_output(batch: Batch, losses: torch.Tensor, metrics: dict[str, Metric]) -> LossOutput:
    """`losses` [pairs] by what each pair counts."""
    weights = pair_weights(batch)
    return LossOutput((losses * weights).sum(), float(weights.sum()), metrics)


def answers_of(batch: Batch) -> Answers:
    """The batch's answers; it has some, for its rows are of a stage that eats them."""
    assert batch.answers is not None, "rows of comparisons or judgements"
    return batch.answers


def pair_weights(batch: Batch) -> torch.Tensor:
    """What each pair counts, float32 [pairs]: 1, or its share of the ranking that it is from."""
    answers = answers_of(batch)
    return answers.importances[answers.signs > 0]


def token_counts(batch: Batch) -> torch.Tensor:
    """The trained tokens of each answer by their weights, float32 [answers]."""
    answers = answers_of(batch)
    return answer_sums(*_trained(batch, batch.weights), len(answers.signs))


def answer_logps(batch: Batch, model: Callable[..., Any], *, tail_weight: float = 1.0) -> torch.Tensor:
    """Σ weight · log p of each answer's tokens in nats, fp32 [answers].

    `tail_weight`: what the tokens count that an answer has beyond the other's length (LD-DPO's α).
    """
    answers = answers_of(batch)
    inputs = forward_inputs(batch.tokens, batch.segments, batch.positions, model, prefixes=batch.prefixes)
    wanted = batch.weights.flatten().nonzero().squeeze(1)
    logps = -losses_at(model, inputs, wanted, batch.labels.flatten()[wanted], token_nll)
    weights, ids = _trained(batch, batch.weights)
    if tail_weight != 1.0:
        weights = weights * desensitised_weights(ids, _shorter(ids, answers), alpha=tail_weight)
    return answer_sums(logps * weights, ids, len(answers.signs))


def reference_logps(batch: Batch, models: Models, *, tail_weight: float = 1.0) -> torch.Tensor:
    """The same under the reference, without gradient: what was computed ahead, else computed here."""
    answers = answers_of(batch)
    if answers.reference is not None:
        return answers.reference
    assert models.reference is not None, "the stage asks for a reference"
    with torch.no_grad():
        return answer_logps(batch, models.reference, tail_weight=tail_weight)


def preference_metrics(batch: Batch, rewards: Pair, logps: Pair) -> dict[str, Metric]:
    """Accuracy and margin of the rewards, both rewards, and the log-probability of an answer's token, both answers.

    rewards, logps: in nats, [pairs] each. What is of pairs counts by their weights, what is of tokens by tokens.
    """
    weights = pair_weights(batch)
    counted = (weights > 0).float()
    counts = Pair.of(token_counts(batch), answers_of(batch))
    sums = torch.stack(
        [
            (rewards.chosen.detach() * weights).sum(),
            (rewards.rejected.detach() * weights).sum(),
            weights.sum(),
            (logps.chosen.detach() * counted).sum(),
            (counts.chosen * counted).sum(),
            (logps.rejected.detach() * counted).sum(),
            (counts.rejected * counted).sum(),
        ]
    ).tolist()
    return {
        **order_metrics(rewards.chosen, rewards.rejected, weights),
        "reward_chosen": Metric(sums[0], sums[2]),
        "reward_rejected": Metric(sums[1], sums[2]),
        "logp_chosen": Metric(sums[3], sums[4]),
        "logp_rejected": Metric(sums[5], sums[6]),
    }


def _trained(batch: Batch, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`values` at the weighted positions, [n], and whose answer each is of, int64 [n]."""
    wanted = batch.weights.flatten().nonzero().squeeze(1)
    return values.flatten()[wanted], answers_of(batch).ids.flatten()[wanted]


def _shorter(ids: torch.Tensor, answers: Answers) -> torch.Tensor:
    """min(n_c, n_r) of each answer's pair, int64 [answers]."""
    lengths = torch.bincount(ids, minlength=len(answers.signs))
    pair = Pair.of(lengths, answers)
    shorter = torch.empty_like(lengths)
    shorter[answers.signs > 0] = shorter[answers.signs < 0] = torch.minimum(pair.chosen, pair.rejected)
    return shorter
