"""Exact arithmetic of updates that are products ΔW = B·A, without forming them.

With B = Q_b·R_b and Aᵀ = Q_a·R_a the product is Q_b·(R_b·R_aᵀ)·Q_aᵀ: its norm, its singular values and its singular
vectors are those of a core of rank × rank numbers. All in float64, so that an error of 1e-8 is measured and not made.
Cost: O((in + out) · rank²) a module.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from cairn.adapters.files import LoraWeights

SAME_AS_ZERO = 1e-6
"""Singular values below this share of the largest are rounding, of weights that are stored in fp32 at best."""


@dataclass(frozen=True)
class Update:
    """ΔW = up · down: `down` [rank, in], `up` [out, rank], float64, with the scaling inside `up`."""

    down: torch.Tensor
    up: torch.Tensor

    @property
    def rank(self) -> int:
        """The number of columns of `up`, which the rank of the product may stay below."""
        return self.down.shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in), as of the weight."""
        return self.up.shape[0], self.down.shape[1]

    def norm(self) -> float:
        """‖ΔW‖ (Frobenius)."""
        return float(torch.linalg.matrix_norm(self._core()[1]))

    def svd(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """U [out, k], σ [k] falling, Vᵀ [k, in] with ΔW = U·diag(σ)·Vᵀ and k ≤ rank."""
        left, core, right = self._core()
        u, sigma, vt = torch.linalg.svd(core, full_matrices=False)
        return left @ u, sigma, vt @ right.T

    def spaces(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Orthonormal bases of its columns [out, k] and of its rows [in, k], k the numerical rank (0 for ΔW = 0)."""
        u, sigma, vt = self.svd()
        k = int((sigma > SAME_AS_ZERO * sigma[:1]).sum())
        return u[:, :k], vt[:k].T

    def truncated(self, rank: int) -> Update:
        """The nearest update of at most `rank` (Eckart and Young 1936); σ is shared out evenly between the factors."""
        u, sigma, vt = self.svd()
        root = sigma[:rank].sqrt()
        return Update(root[:, None] * vt[:rank], u[:, :rank] * root)

    def product(self) -> torch.Tensor:
        """ΔW itself [out, in], for what works number by number."""
        return self.up @ self.down

    def _core(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        left, r_up = torch.linalg.qr(self.up)
        right, r_down = torch.linalg.qr(self.down.T)
        return left, r_up @ r_down.T, right


def updates_of(weights: LoraWeights) -> dict[str, Update]:
    """Path → ΔW of every module that `weights` changes."""
    return {
        path: Update(a.detach().double().cpu(), b.detach().double().cpu() * weights.scaling[path])
        for path, (a, b) in weights.layers.items()
    }


def weighted_sum(terms: Sequence[tuple[float, Update]]) -> Update:
    """Σ wᵢ·ΔWᵢ, exact: the factors side by side, of the rank that theirs add up to."""
    return Update(
        torch.cat([update.down for _, update in terms]),
        torch.cat([weight * update.up for weight, update in terms], dim=1),
    )


def inner(one: Update, other: Update) -> float:
    """⟨ΔW, ΔW'⟩ = tr(ΔWᵀ·ΔW')."""
    return float(((one.up.T @ other.up) * (one.down @ other.down.T)).sum())


@dataclass(frozen=True)
class Deviation:
    """‖found − wanted‖ / ‖wanted‖, over all modules together and of each; infinite where nothing was wanted."""

    total: float
    modules: dict[str, float]


def deviation(found: Mapping[str, Update], wanted: Mapping[str, Update]) -> Deviation:
    """How far updates are from those that were wanted, of the same paths."""
    norms = {path: update.norm() for path, update in wanted.items()}
    misses = {path: weighted_sum([(1.0, found[path]), (-1.0, update)]).norm() for path, update in wanted.items()}
    return Deviation(
        _share(math.hypot(*misses.values()), math.hypot(*norms.values())),
        {path: _share(misses[path], norms[path]) for path in wanted},
    )


def _share(miss: float, norm: float) -> float:
    if norm == 0.0:
        return 0.0 if miss == 0.0 else math.inf
    return miss / norm
