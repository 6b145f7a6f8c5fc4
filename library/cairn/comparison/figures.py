"""From what was measured to figures with names: the same for every stage, none of them a stage's own reward.

lp = Σ log p of an answer's tokens, n their number, c and r the chosen and the rejected answer, base the model that all
runs began from. A tie counts half. Pairs of one ranking count 1 together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import torch

from cairn.comparison.measure import Measured
from cairn.losses.ranking import order_metrics
from cairn.stages._answers import Pair

Figures = dict[str, float | None]


@dataclass(frozen=True)
class Figure:
    """How a figure is called and read, and whether more or less of it is better."""

    label: str
    better: Literal["max", "min"]
    meaning: str


FIGURES = {
    "accuracy": Figure("Accuracy", "max", "share of pairs with lp_c / n_c > lp_r / n_r; of a reward model s_c > s_r"),
    "accuracy_summed": Figure("Summed", "max", "share of pairs with lp_c > lp_r"),
    "accuracy_reward": Figure("Reward", "max", "share of pairs with a margin above 0"),
    "margin": Figure("Margin", "max", "mean of (lp_c − base_c) − (lp_r − base_r), nats; of a reward model s_c − s_r"),
    "kl_per_token": Figure(
        "KL / token", "min", "Σ (log p − log p_base) / tokens over answers sampled from the run, nats"
    ),
    "kl_per_answer": Figure(
        "KL / answer", "min", "the same Σ per answer, nats; an estimate, which a few answers may bring below 0"
    ),
    "answer_tokens": Figure("Length", "min", "mean tokens of a sampled answer, its end token included"),
    "ended": Figure("Ended", "max", "share of the sampled answers that ended before the limit"),
    "bpb": Figure("Bits / byte", "min", "bits per byte of all documents together"),
    "tokens": Figure("Tokens", "min", "tokens read in training, padding not counted"),
    "seconds": Figure("Seconds", "min", "time in training steps"),
    "steps": Figure("Steps", "min", "optimizer steps"),
    "peak_memory_bytes": Figure("Peak memory", "min", "of one worker, bytes"),
}
"""Every figure by its name in `comparison.json`, in the order of the table."""


def base_figures(base: Measured) -> Figures:
    """Of the base model, which has no distance to itself."""
    pairs, bits = base.pairs, base.bits_per_byte
    return {
        "accuracy": _order(pairs.values / pairs.counts, pairs.weights)["accuracy"],
        "accuracy_summed": _order(pairs.values, pairs.weights)["accuracy"],
        "answer_tokens": sum(len(answer.tokens) for answer in base.answers) / len(base.answers),
        "ended": sum(answer.finish == "stop" for answer in base.answers) / len(base.answers),
        "bpb": bits.micro if bits else None,
    }


def speaker_figures(found: Measured, base: Measured, base_nats: Sequence[Sequence[float]]) -> Figures:
    """Of a language model; `base_nats`: −log p of each token of its answers under the base."""
    reward = _order(found.pairs.values - base.pairs.values, found.pairs.weights)
    log_ratio = math.fsum(chain.from_iterable(base_nats)) - math.fsum(chain.from_iterable(found.nats))
    return base_figures(found) | {
        "accuracy_reward": reward["accuracy"],
        "margin": reward["margin"],
        "kl_per_token": log_ratio / sum(len(nats) for nats in found.nats),
        "kl_per_answer": log_ratio / len(found.nats),
    }


def scorer_figures(found: Measured) -> Figures:
    """Of a reward model, whose reward is its score."""
    order = _order(found.pairs.values, found.pairs.weights)
    return {"accuracy": order["accuracy"], "accuracy_reward": order["accuracy"], "margin": order["margin"]}


def interval(share: float, count: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of `count` cases (Wilson 1927)."""
    z2 = 1.959964**2
    middle = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = math.sqrt(z2 * (share * (1 - share) / count + z2 / (4 * count**2))) / (1 + z2 / count)
    return middle - half, middle + half


def _order(values: Pair, weights: torch.Tensor) -> dict[str, float]:
    return {name: metric.value for name, metric in order_metrics(values.chosen, values.rejected, weights).items()}
