"""How AdaLoRA (Zhang et al. 2023, arXiv 2303.10512) shares a budget of rank among layers.

A component i of a layer, P_i λ_i Q_i, is worth S(λ_i) + mean S(P_i) + mean S(Q_i), where S = Ī·Ū: Ī is the smoothed
sensitivity |w·∂L/∂w| and Ū the smoothed deviation from it (equations 7 to 11). The budget falls from the first ranks to
the target by a cube (equation 12), and those of all components that are worth least are set to zero; they may come back
until the last allocation, after which the choice stands. Equal to PEFT's allocator, but where components are worth the
same: there PEFT takes all of them away, here exactly the budget is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

Triplet = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Q [rank, in], λ [rank, 1] and P [out, rank] of a layer; or something of the same shapes for each number in them."""


@dataclass(frozen=True)
class Budget:
    """Components at each step: `first` through step `begins`, `target` from step `ends` on; steps count from 1."""

    first: int
    target: int
    begins: int
    ends: int

    def at(self, step: int) -> int:
        """Components that are kept after `step`."""
        if step <= self.begins:
            return self.first
        if step >= self.ends:
            return self.target
        left = 1 - (step - self.begins) / (self.ends - self.begins)
        return int((self.first - self.target) * left**3 + self.target)


class Importance:
    """Smoothed sensitivity and its smoothed deviation of every number of a layer."""

    def __init__(self, *, sensitivity_decay: float, deviation_decay: float) -> None:
        self.decays = sensitivity_decay, deviation_decay
        self.sensitivity: dict[str, list[torch.Tensor]] = {}
        self.deviation: dict[str, list[torch.Tensor]] = {}

    def observe(self, layer: str, values: Triplet, gradients: Triplet) -> None:
        """One step more."""
        beta1, beta2 = self.decays
        seen = [(value * gradient).abs() for value, gradient in zip(values, gradients, strict=True)]
        zeros = [torch.zeros_like(part) for part in seen]
        before = zip(self.sensitivity.get(layer, zeros), self.deviation.get(layer, zeros), seen, strict=True)
        smooth, spread = [], []
        for mean, deviation, now in before:
            mean = beta1 * mean + (1 - beta1) * now
            smooth.append(mean)
            spread.append(beta2 * deviation + (1 - beta2) * (now - mean).abs())
        self.sensitivity[layer], self.deviation[layer] = smooth, spread

    def scores(self) -> dict[str, torch.Tensor]:
        """What each component of each layer is worth, [rank]."""
        found = {}
        for layer, smooth in self.sensitivity.items():
            q, value, p = (mean * spread for mean, spread in zip(smooth, self.deviation[layer], strict=True))
            found[layer] = value.view(-1) + q.mean(dim=1) + p.mean(dim=0)
        return found


def best(scores: Mapping[str, torch.Tensor], count: int) -> dict[str, torch.Tensor]:
    """Which components of each layer are among the `count` that are worth most, as bool [rank]; earlier ones win ties."""
    everything = torch.cat(list(scores.values()))
    kept = torch.zeros(len(everything), dtype=torch.bool, device=everything.device)
    kept[torch.argsort(everything, descending=True, stable=True)[:count]] = True
    return dict(zip(scores, kept.split([len(score) for score in scores.values()]), strict=True))
