"""DPO and its relatives: what one pair of answers costs, given how far the policy has moved on each.

Every variant is a function of two log-ratios per pair, d = lp − ref in nats: d_c of the chosen answer, d_r of the
rejected. h = d_c − d_r, β scales. At policy = reference d_c = d_r = 0, and the sigmoid loss is ln 2.
`VARIANTS[name](d_c, d_r, beta=…, label_smoothing=…, delta=…)` returns [pairs], unreduced: nothing here divides by a
batch. Costs nothing beside a forward pass.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch.nn.functional import logsigmoid

from cairn.losses.answers import token_means
from cairn.losses.precision import widen

DISCOPOP_TAU = 0.05


def logistic(margin: torch.Tensor, label_smoothing: float = 0.0) -> torch.Tensor:
    """−(1 − s)·log σ(margin) − s·log σ(−margin): the nats of "the first wins" when a label is wrong with chance s.

    Raises ValueError unless 0 ≤ s ≤ ½: above, the labels would mean their opposite.
    """
    if not 0.0 <= label_smoothing <= 0.5:
        raise ValueError(f"label_smoothing is {label_smoothing}: take 0 ≤ label_smoothing ≤ 0.5")
    loss = -logsigmoid(margin)
    return loss + label_smoothing * margin if label_smoothing else loss


def sigmoid(d_c: torch.Tensor, d_r: torch.Tensor, *, beta: float, label_smoothing: float = 0.0) -> torch.Tensor:
    """−(1 − s)·log σ(βh) − s·log σ(−βh). DPO (Rafailov et al. 2023, eq. 7); with s > 0 conservative DPO."""
    return logistic(beta * (d_c - d_r), label_smoothing)


def robust(d_c: torch.Tensor, d_r: torch.Tensor, *, beta: float, label_smoothing: float = 0.0) -> torch.Tensor:
    """(−(1 − s)·log σ(βh) + s·log σ(−βh)) / (1 − 2s): unbiased under a share s < ½ of flipped labels.

    Chowdhury et al. 2024 (arXiv 2403.00409). Not bounded below for s > 0.
    """
    if not 0.0 <= label_smoothing < 0.5:
        raise ValueError(f"label_smoothing is {label_smoothing}: robust takes 0 ≤ label_smoothing < 0.5")
    margin = beta * (d_c - d_r)
    flipped = label_smoothing / (1 - 2 * label_smoothing)
    return -logsigmoid(margin) - flipped * margin


def hinge(d_c: torch.Tensor, d_r: torch.Tensor, *, beta: float) -> torch.Tensor:
    """max(0, 1 − βh): SLiC-HF (Zhao et al. 2023) on log-ratios, as Liu et al. 2023 (RSO)."""
    return torch.relu(1 - beta * (d_c - d_r))


def ipo(d_c: torch.Tensor, d_r: torch.Tensor, *, beta: float) -> torch.Tensor:
    """(h − 1/(2β))². Azar et al. 2023, eq. 17, where it is of sums; on token means, which users expect, by default."""
    return (d_c - d_r - 1 / (2 * beta)).square()


def exo(d_c: torch.Tensor, d_r: torch.Tensor, *, beta: float, label_smoothing: float) -> torch.Tensor:
    """KL((q, 1 − q) ‖ (1 − s, s)) with q = σ(βh) and 0 < s ≤ ½. EXO-pref (Ji et al. 2024, eq. 16)."""
    if not 0.0 < label_smoothing <= 0.5:
        raise ValueError(
            f"label_smoothing is {label_smoothing}: exo takes 0 < label_smoothing ≤ 0.5; at 0 it is infinite"
        )
    margin = beta * (d_c - d_r)
    won = margin.sigmoid() * (logsigmoid(margin) - math.log1p(-label_smoothing))
    lost = (-margin).sigmoid() * (logsigmoid(-margin) - math.log(label_smoothing))
    return won + lost


def bco(d_c: torch.Tensor, d_r: torch.Tensor, *, beta: float, delta: float = 0.0) -> torch.Tensor:
    """−log σ(β·d_c − δ) − log σ(−(β·d_r − δ)). Jung et al. 2024 (arXiv 2404.04656).

    delta: δ, the running mean of the rewards β·d over all answers, kept by the caller over global batches; no gradient.
    """
    return -logsigmoid(beta * d_c - delta) - logsigmoid(delta - beta * d_r)


def nca(d_c: torch.Tensor, d_r: torch.Tensor, *, beta: float) -> torch.Tensor:
    """−log σ(β·d_c) − ½·log σ(−β·d_c) − ½·log σ(−β·d_r). Noise-contrastive alignment (Chen et al. 2024, 2402.05369)."""
    return -logsigmoid(beta * d_c) - 0.5 * logsigmoid(-beta * d_c) - 0.5 * logsigmoid(-beta * d_r)


def sppo_hard(d_c: torch.Tensor, d_r: torch.Tensor, *, beta: float) -> torch.Tensor:
    """(d_c − 1/(2β))² + (d_r + 1/(2β))². SPPO (Wu et al. 2024, eq. 4.7) with the winner's chance at 1."""
    return (d_c - 0.5 / beta).square() + (d_r + 0.5 / beta).square()


def apo_zero(d_c: torch.Tensor, d_r: torch.Tensor, *, beta: float) -> torch.Tensor:
    """1 − σ(β·d_c) + σ(β·d_r): chosen up, rejected down. D'Oosterlinck et al. 2024 (arXiv 2408.06266), eq. 7."""
    return torch.sigmoid(-beta * d_c) + torch.sigmoid(beta * d_r)


def apo_down(d_c: torch.Tensor, d_r: torch.Tensor, *, beta: float) -> torch.Tensor:
    """σ(β·d_c) + 1 − σ(βh): both down, rejected more; for chosen answers worse than the policy's own. Same, eq. 8."""
    return torch.sigmoid(beta * d_c) + torch.sigmoid(-beta * (d_c - d_r))


def discopop(d_c: torch.Tensor, d_r: torch.Tensor, *, beta: float) -> torch.Tensor:
    """(1 − g)·(−log σ(βh)) + g·e^(−βh) with g = σ(βh/τ), τ = 0.05. Lu et al. 2024 (arXiv 2406.08414), eq. 5.

    Found by a search, not derived: logistic where the rejected answer leads, exponential where the chosen one does,
    with a small hump just above h = 0. Written so that e^(−βh) never overflows.
    """
    margin = beta * (d_c - d_r)
    gate = margin / DISCOPOP_TAU
    return -logsigmoid(margin) * torch.sigmoid(-gate) + torch.exp(logsigmoid(gate) - margin)


@dataclass(frozen=True)
class Variant:
    """A loss of a pair that may be called as any other. `per_token`: meant for means per token, not for sums."""

    formula: Callable[..., torch.Tensor]
    per_token: bool = False

    @property
    def options(self) -> frozenset[str]:
        """What it takes beside β: "label_smoothing", "delta", or nothing."""
        return frozenset(inspect.signature(self.formula).parameters) - {"d_c", "d_r", "beta"}

    def __call__(
        self,
        chosen_ratio: torch.Tensor,
        rejected_ratio: torch.Tensor,
        *,
        beta: float,
        label_smoothing: float = 0.0,
        delta: float = 0.0,
    ) -> torch.Tensor:
        """The loss of each pair, fp32 [pairs] (float64 kept).

        chosen_ratio, rejected_ratio: [pairs], d_c and d_r in nats, sums over the answers' tokens or, where `per_token`,
        means. Raises ValueError for β ≤ 0 and for an option that this variant has no use for.
        """
        if not beta > 0:
            raise ValueError(f"beta is {beta}: take a beta above 0")
        given = {"label_smoothing": label_smoothing, "delta": delta}
        taken = {name: value for name, value in given.items() if name in self.options}
        for name, value in given.items():
            if value and name not in taken:
                raise ValueError(f"{name} is {value}, and {self.formula.__name__} has none: leave it at 0")
        return self.formula(widen(chosen_ratio), widen(rejected_ratio), beta=beta, **taken)


VARIANTS: Mapping[str, Variant] = MappingProxyType(
    {
        "sigmoid": Variant(sigmoid),
        "sigmoid_norm": Variant(sigmoid, per_token=True),
        "robust": Variant(robust),
        "hinge": Variant(hinge),
        "ipo": Variant(ipo, per_token=True),
        "exo": Variant(exo),
        "bco": Variant(bco),
        "nca": Variant(nca),
        "sppo_hard": Variant(sppo_hard),
        "apo_zero": Variant(apo_zero),
        "apo_down": Variant(apo_down),
        "discopop": Variant(discopop),
    }
)


def sft_term(chosen: torch.Tensor, chosen_tokens: torch.Tensor) -> torch.Tensor:
    """−lp_c / n_c [pairs] in nats, to be added with a weight: keeps the chosen answer likely (RPO, Pang et al. 2024).

    chosen: [pairs], plain sums of log-probabilities, not desensitised ones. chosen_tokens: [pairs], each ≥ 1.
    """
    return -token_means(chosen, chosen_tokens)


def with_bco(loss: torch.Tensor, bco_loss: torch.Tensor, *, weight: float) -> torch.Tensor:
    """(loss + w·bco) / (1 + w) [pairs], as LlamaFactory's `pref_bco_weight` has it. Raises ValueError for w < 0."""
    if weight < 0:
        raise ValueError(f"weight is {weight}: the BCO term takes a weight of at least 0")
    return (loss + weight * bco_loss) / (1 + weight)
