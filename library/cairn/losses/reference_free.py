"""Preference losses without a reference model: ORPO, SimPO, CPO. One model in memory, one forward pass a pair.

They take sums of log-probabilities `chosen`, `rejected` [pairs] in nats under the policy with the numbers of tokens
n_c, n_r [pairs], each ≥ 1, and return [pairs], unreduced. p̄ = lp/n is the mean log-probability of an answer's token:
ORPO and SimPO are normalised by length, CPO is not.
"""

from __future__ import annotations

import math

import torch
from torch.nn.functional import logsigmoid

from cairn.losses.answers import token_means
from cairn.losses.precision import widen
from cairn.losses.preference import logistic, sft_term


def orpo(
    chosen: torch.Tensor,
    rejected: torch.Tensor,
    chosen_tokens: torch.Tensor,
    rejected_tokens: torch.Tensor,
    *,
    beta: float,
) -> torch.Tensor:
    """−p̄_c − β·log σ(log odds(p̄_c) − log odds(p̄_r)). Hong et al. 2024 (arXiv 2403.07691), eq. 6 and 7.

    beta: the paper's λ. Raises ValueError for beta < 0; at 0 it is supervised fine-tuning on the chosen answer.
    """
    if beta < 0:
        raise ValueError(f"beta is {beta}: ORPO takes the weight of its odds term, at least 0")
    chosen_odds = log_odds(token_means(chosen, chosen_tokens))
    rejected_odds = log_odds(token_means(rejected, rejected_tokens))
    return sft_term(chosen, chosen_tokens) - beta * logsigmoid(chosen_odds - rejected_odds)


def simpo(
    chosen: torch.Tensor,
    rejected: torch.Tensor,
    chosen_tokens: torch.Tensor,
    rejected_tokens: torch.Tensor,
    *,
    beta: float,
    gamma: float,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """−log σ(β·(p̄_c − p̄_r) − γ). Meng et al. 2024 (arXiv 2405.14734), eq. 6. gamma: γ, the margin to reach, in nats·β.

    Raises ValueError for beta ≤ 0.
    """
    _refuse_no_beta(beta)
    gap = token_means(chosen, chosen_tokens) - token_means(rejected, rejected_tokens)
    return logistic(beta * gap - gamma, label_smoothing)


def cpo(
    chosen: torch.Tensor,
    rejected: torch.Tensor,
    chosen_tokens: torch.Tensor,
    *,
    beta: float,
    sft_weight: float = 1.0,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """−log σ(β·(lp_c − lp_r)) + α·(−lp_c / n_c), of sums. Xu et al. 2024 (arXiv 2401.08417), eq. 3.

    sft_weight: α. Raises ValueError for beta ≤ 0.
    """
    _refuse_no_beta(beta)
    preference = logistic(beta * (widen(chosen) - widen(rejected)), label_smoothing)
    return preference + sft_weight * sft_term(chosen, chosen_tokens)


def log_odds(log_p: torch.Tensor) -> torch.Tensor:
    """log(p / (1 − p)) of log p ≤ 0, any shape.

    Where log p is closer to 0 than the dtype's epsilon ε (1.2e-7 in fp32), or above 0 by rounding, p is taken to be
    e^−ε, with no gradient: the odds of a certainty are infinite, here they are about 1/ε.
    """
    certain = -torch.finfo(log_p.dtype).eps
    below_one = log_p.clamp(max=certain)
    return below_one - log1mexp(below_one)


def log1mexp(x: torch.Tensor) -> torch.Tensor:
    """log(1 − e^x) of x < 0, exact to rounding near 0 and far from it (Mächler 2012: two forms, split at −ln 2).

    The form for far x never sees x near 0: its log 0 would reach the gradient as 0 · ∞.
    """
    split = -math.log(2)
    near = x > split
    close = torch.log(-torch.expm1(x))
    far = torch.log1p(-torch.exp(torch.where(near, split, x)))
    return torch.where(near, close, far)


def _refuse_no_beta(beta: float) -> None:
    if not beta > 0:
        raise ValueError(f"beta is {beta}: take a beta above 0")
