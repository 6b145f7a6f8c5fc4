"""Reward models: the score of the better answer above the score of the worse (Bradley and Terry 1952).

A ranking of n answers is n(n−1)/2 pairs of one group; each then weighs 1 / the number of pairs of its group, so that a
long ranking counts as much as one pair. The weight comes with the record, the loss here is unreduced.
"""

from __future__ import annotations

import torch

from cairn.losses.precision import widen
from cairn.losses.preference import logistic
from cairn.metrics import Metric


def bradley_terry(
    chosen_score: torch.Tensor,
    rejected_score: torch.Tensor,
    *,
    margin: torch.Tensor | float = 0.0,
    centring: float = 0.0,
) -> torch.Tensor:
    """−log σ(s_c − s_r − margin) + c·(s_c + s_r)², fp32 [pairs] (float64 kept).

    margin: [pairs] or one for all, by how much the better should win (Touvron et al. 2023, Llama 2, eq. 2).
    centring: c, about 0.01; draws the two scores' mean to 0, which the loss else leaves free (Eisenstein et al. 2023).

    Raises ValueError for centring < 0.
    """
    if centring < 0:
        raise ValueError(f"centring is {centring}: take a coefficient of at least 0")
    better, worse = widen(chosen_score), widen(rejected_score)
    loss = logistic(better - worse - margin)
    return loss + centring * (better + worse).square() if centring else loss


def order_metrics(chosen_score: torch.Tensor, rejected_score: torch.Tensor, weights: torch.Tensor) -> dict[str, Metric]:
    """`accuracy`, how often the chosen scores higher, a tie counting half; `margin`, by how much, s_c − s_r.

    All [pairs]. The scores are a reward model's, or β·d of a DPO policy. Sums over the pairs, counted per weight.
    """
    weights = weights.detach().double()
    margin = chosen_score.detach().double() - rejected_score.detach().double()
    right = (margin.sign() + 1) / 2
    right_sum, margin_sum, weight = torch.stack(
        [(right * weights).sum(), (margin * weights).sum(), weights.sum()]
    ).tolist()
    return {"accuracy": Metric(right_sum, weight), "margin": Metric(margin_sum, weight)}
