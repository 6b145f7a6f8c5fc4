"""The factors of a matrix that is only known by what it makes of vectors, where its rank is low; and whether it is.

The randomised range finder of Halko, Martinsson and Tropp (2011, SIAM Review 53, algorithm 4.2): what random vectors
become spans the columns. The residual is measured on vectors that were not used for it. Cost: a few products with as
many vectors as the rank, twice that at most; the matrix is never written down.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from cairn.adapters.factors import SAME_AS_ZERO

EXACT = 1e-5
"""Largest residual, relative to the matrix."""
FIRST, MORE, PROBES = 16, 8, 4
"""Vectors of the first try, more of them than the rank that is looked for, and those that check."""

Product = Callable[[torch.Tensor], torch.Tensor]


def low_rank(product: Product, inputs: int, *, most: int) -> tuple[torch.Tensor, torch.Tensor] | None:
    """A [rank, in] and B [out, rank] with product(x) = x·Aᵀ·Bᵀ to EXACT; None where that takes a rank above `most`.

    product: linear and differentiable, float64 [n, in] → [n, out]. Rank 0 where it gives nothing.
    """
    generator = torch.Generator().manual_seed(0)

    def draw(count: int) -> torch.Tensor:
        return torch.randn(count, inputs, generator=generator, dtype=torch.float64)

    probes = draw(PROBES)
    wanted = product(probes)
    rank = min(FIRST, most)
    while True:
        down, up = _factors(product, draw(rank + MORE))
        miss = float((probes @ down.T @ up.T - wanted).norm())
        if miss <= EXACT * float(wanted.norm()) and down.shape[0] <= most:
            return down, up
        if rank == most:
            return None
        rank = min(4 * rank, most)


def _factors(product: Product, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the part of the matrix that `vectors` reach; singular values that are rounding are left out."""
    columns = torch.linalg.qr(product(vectors).T)[0]
    with torch.enable_grad():
        zeros = torch.zeros(columns.shape[1], vectors.shape[1], dtype=torch.float64, requires_grad=True)
        (rows,) = torch.autograd.grad(product(zeros), zeros, columns.T)
    u, sigma, vt = torch.linalg.svd(rows, full_matrices=False)
    rank = int((sigma > SAME_AS_ZERO * sigma[:1]).sum())
    root = sigma[:rank].sqrt()
    return root[:, None] * vt[:rank], columns @ u[:, :rank] * root
