"""Does a reward model know how sure it is? σ(s_c − s_r) is its chance that the chosen answer wins; is it right so often?

The truth of every pair is "chosen wins", so the confidence is that of the answer it prefers, max(p, 1 − p), in ten bins
from ½ to 1. Every bin is a Metric, summed over workers and steps as any other; the error is taken last.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn.functional import logsigmoid

from cairn.metrics import Metric

BINS = 10
PREFIX = "calibration/"


def calibration_metrics(
    chosen_score: torch.Tensor, rejected_score: torch.Tensor, weights: torch.Tensor
) -> dict[str, Metric]:
    """`brier`, (1 − p)²; `log_score`, −log p in nats; `calibration/0.50` to `calibration/0.95`, right − confidence.

    p = σ(s_c − s_r); all [pairs]; sums over the pairs, counted per weight. A bin is named by its lower bound; its
    value is above 0 where the model is too modest, below 0 where it is too sure. A tie is half right at confidence ½.
    Bins without a pair are left out.
    """
    weights = weights.detach().double()
    margin = chosen_score.detach().double() - rejected_score.detach().double()
    confidence = torch.sigmoid(margin.abs())
    gap = (margin.sign() + 1) / 2 - confidence
    place = ((confidence - 0.5) * 2 * BINS).long().clamp(max=BINS - 1)
    empty = weights.new_zeros(BINS)
    gaps = empty.index_add(0, place, gap * weights).tolist()
    counts = empty.index_add(0, place, weights).tolist()
    brier, log_score, weight = torch.stack(
        [(torch.sigmoid(-margin).square() * weights).sum(), (-logsigmoid(margin) * weights).sum(), weights.sum()]
    ).tolist()
    bins = {f"{PREFIX}{0.5 + i / (2 * BINS):.2f}": Metric(gaps[i], counts[i]) for i in range(BINS) if counts[i]}
    return {"brier": Metric(brier, weight), "log_score": Metric(log_score, weight), **bins}


def expected_calibration_error(metrics: Mapping[str, Metric]) -> float:
    """Σ over bins |Σ(right − confidence)| / Σ weight, 0 to 1; not-a-number where no pair was counted.

    metrics: `calibration_metrics`, merged over all pairs. Guo et al. 2017, eq. 3.
    """
    bins = [metric for name, metric in metrics.items() if name.startswith(PREFIX)]
    return Metric(sum(abs(part.total) for part in bins), sum(part.weight for part in bins)).value
