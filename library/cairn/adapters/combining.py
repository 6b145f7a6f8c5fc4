"""Ways to make one update of several, a function each, module by module.

    cat               Σ wᵢ·ΔWᵢ exactly; the rank is the sum of theirs
    svd               its best approximation of a rank (Eckart and Young 1936)
    linear            A and B are added separately: (Σ √wᵢ·Bᵢ)·(Σ √wᵢ·Aᵢ), which is not the sum of the products
    ties              of each ΔWᵢ the largest numbers, those that agree with the sign of most, averaged (arXiv 2306.01708)
    dare              of each ΔWᵢ a random share, enlarged by what was dropped, added (arXiv 2311.03099)
    magnitude_prune   of each ΔWᵢ the largest numbers, added

The papers' task vectors are the changes of the weights, so the last three work on ΔW itself and not, as PEFT's of the
same name, on A and B; what they make is of full rank and is then cut by SVD (PEFT calls that ties_svd and so on). They
hold one full matrix for each adapter and cost its SVD; the others never form one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from cairn.adapters.factors import Update, weighted_sum


@dataclass(frozen=True)
class Term:
    """An adapter's part of one module: its wanted weight, its update, and the scaling that `update.up` holds."""

    weight: float
    update: Update
    scaling: float


@dataclass(frozen=True)
class Knobs:
    """`rank` of what is cut by SVD; `density`, the share of numbers that sparse ways keep; `draw`, their chance."""

    rank: int
    density: float
    draw: torch.Generator


def cat(terms: Sequence[Term], knobs: Knobs) -> Update:
    """Σ wᵢ·ΔWᵢ."""
    return weighted_sum([(term.weight, term.update) for term in terms])


def svd(terms: Sequence[Term], knobs: Knobs) -> Update:
    """The nearest update of `knobs.rank` to Σ wᵢ·ΔWᵢ."""
    return cat(terms, knobs).truncated(knobs.rank)


def linear(terms: Sequence[Term], knobs: Knobs) -> Update:
    """Sums of A and of B, each by the root of weight · scaling; a negative sign is A's. Ranks must be equal."""
    roots = [math.sqrt(abs(term.weight)) for term in terms]
    even = [math.sqrt(term.scaling) for term in terms]
    down = [math.copysign(r, t.weight) * s * t.update.down for t, r, s in zip(terms, roots, even, strict=True)]
    up = [r / s * t.update.up for t, r, s in zip(terms, roots, even, strict=True)]
    return Update(torch.stack(down).sum(0), torch.stack(up).sum(0))


def ties(terms: Sequence[Term], knobs: Knobs) -> Update:
    """Trim, elect a sign by total mass, average the weighted numbers that agree with it."""
    kept = torch.stack([_largest(term.update.product(), knobs.density) for term in terms])
    elected = torch.where(kept.sum(0) >= 0, 1.0, -1.0)
    agrees = kept.sign() == elected
    weights = kept.new_tensor([term.weight for term in terms])[:, None, None]
    return _cut((weights * kept * agrees).sum(0) / agrees.sum(0).clamp(min=1), knobs)


def dare(terms: Sequence[Term], knobs: Knobs) -> Update:
    """Drop each number with the chance 1 − density, divide the rest by density, add by weight."""
    total = torch.zeros_like(terms[0].update.product())
    for term in terms:
        product = term.update.product()
        stays = torch.rand(product.shape, generator=knobs.draw, dtype=product.dtype) < knobs.density
        total += term.weight / knobs.density * product * stays
    return _cut(total, knobs)


def magnitude_prune(terms: Sequence[Term], knobs: Knobs) -> Update:
    """Σ wᵢ · the largest numbers of ΔWᵢ."""
    products = (term.weight * _largest(term.update.product(), knobs.density) for term in terms)
    return _cut(torch.stack(list(products)).sum(0), knobs)


Way = Callable[[Sequence[Term], Knobs], Update]
WAYS: dict[str, Way] = {
    "cat": cat,
    "svd": svd,
    "linear": linear,
    "ties": ties,
    "dare": dare,
    "magnitude_prune": magnitude_prune,
}
UNCUT = ("cat", "linear")
"""Ways that leave no choice of a rank."""


def _largest(matrix: torch.Tensor, density: float) -> torch.Tensor:
    """`matrix` with all but its largest numbers at zero."""
    flat = matrix.flatten()
    kept = torch.zeros_like(flat)
    places = flat.abs().topk(max(1, int(density * flat.numel()))).indices
    kept[places] = flat[places]
    return kept.view_as(matrix)


def _cut(matrix: torch.Tensor, knobs: Knobs) -> Update:
    """The nearest update of `knobs.rank`; the SVD of a full matrix runs in fp32, at half the cost."""
    u, sigma, vt = torch.linalg.svd(matrix.float(), full_matrices=False)
    root = sigma[: knobs.rank].double().sqrt()
    return Update(root[:, None] * vt[: knobs.rank].double(), u[:, : knobs.rank].double() * root)
