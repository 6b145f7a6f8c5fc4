"""KTO: learning from answers that were each judged good or bad, without pairs (Ethayarajh et al. 2024, 2402.01306).

An answer gains by how far its log-ratio d = lp − ref lies above (good) or below (bad) the baseline z₀, an estimate of
KL(policy ‖ reference) from prompts with answers that are not theirs. z₀ belongs to the whole global batch: its sum and
count are gathered before the first backward. z₀ = 0 is APO-zero unpaired, which needs no mismatched answers.
"""

from __future__ import annotations

import math

import torch

from cairn.losses.precision import widen


def kto(
    ratio: torch.Tensor,
    good: torch.Tensor,
    *,
    baseline: float,
    beta: float,
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
) -> torch.Tensor:
    """Good: λ_D·(1 − σ(β(d − z₀))). Bad: λ_U·(1 − σ(β(z₀ − d))). fp32 [judgements] (float64 kept), unreduced.

    ratio: [judgements], d in nats, a sum over the answer's tokens. good: bool [judgements]. baseline: z₀ in nats.
    Where good and bad are out of balance, choose the weights so that λ_D·n_good : λ_U·n_bad is 1:1 to 4:3.

    Raises ValueError for beta ≤ 0 and for weights below 0.
    """
    if not beta > 0:
        raise ValueError(f"beta is {beta}: take a beta above 0")
    if desirable_weight < 0 or undesirable_weight < 0:
        raise ValueError(f"weights are {desirable_weight} and {undesirable_weight}: take weights of at least 0")
    gain = beta * (widen(ratio) - baseline)
    lost = torch.sigmoid(torch.where(good, -gain, gain))
    return torch.where(good, desirable_weight * lost, undesirable_weight * lost)


def kl_baseline(total: float, count: float) -> float:
    """z₀ = max(0, Σ(lp − ref) / count) in nats, of the mismatched answers of the global batch.

    Raises ValueError where there is none, and for a sum that is not finite: max(0, not-a-number) would hide it.
    """
    if count <= 0:
        raise ValueError("no mismatched answer in the global batch: KTO's baseline needs at least two prompts in it")
    if not math.isfinite(total):
        raise ValueError(f"the log-ratios of the mismatched answers sum to {total}: the policy's output is not finite")
    return max(0.0, total / count)
