"""Two re-weightings of the fine-tuning loss, token by token: a loss is the sum of nll · these weights.

Both look at the policy's own distribution and let no gradient through, so they only scale each token's gradient.
They multiply whatever weights the row carries; where nothing is supervised there is nothing to weigh.
"""

from __future__ import annotations

import torch

from cairn.losses.precision import widen

TOP_TOKENS = 20
"""EAFT measures the entropy among so many most probable tokens …"""
TOP_ENTROPY_NATS = 3.0
"""… and divides it by this: ln 20 ≈ 2.996, the most it can be."""


def dft_weights(nll: torch.Tensor) -> torch.Tensor:
    """p(label) = e^−nll, [n] without gradient: dynamic fine-tuning (Wu et al. 2025, arXiv 2508.05629).

    nll: [n] in nats, without label smoothing. Undoes the 1/p of the cross-entropy's gradient, so that tokens the
    policy finds absurd no longer dominate.
    """
    return torch.exp(-widen(nll.detach()))


def eaft_weights(logits: torch.Tensor, *, alpha: float = 1.0) -> torch.Tensor:
    """(H/3)^alpha, [n] without gradient: entropy-adaptive fine-tuning (Diao et al. 2026, arXiv 2601.02151).

    logits: [n, vocabulary]. H is the entropy in nats of the softmax over the 20 largest logits alone. A token of which
    the policy is certain, rightly or wrongly, hardly trains. alpha = 0 is plain cross-entropy.

    Raises ValueError for a negative alpha: the weight of a certain token would be infinite.
    """
    if alpha < 0:
        raise ValueError(f"alpha is {alpha}: EAFT takes alpha ≥ 0; below, a certain token weighs infinitely much")
    top = widen(logits.detach()).topk(min(TOP_TOKENS, logits.shape[-1]), dim=-1).values
    entropy_nats = torch.special.entr(top.softmax(dim=-1)).sum(dim=-1)
    return (entropy_nats / TOP_ENTROPY_NATS).pow(alpha)
