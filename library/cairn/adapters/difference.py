"""Two adapters side by side: how strongly each changes each module, how far apart, and how much in the same directions.

The overlap of two spaces is that of Hu et al. (2021, section 7.2): the mean of cos² over their principal angles, 1 when
the smaller space lies in the larger, about k / dimension for random ones. Cost: a few QRs of the factors a module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from cairn.adapters.factors import Update, deviation, inner, updates_of
from cairn.adapters.files import LoraWeights
from cairn.errors import AdapterError


@dataclass(frozen=True)
class ModuleDifference:
    """One module. `relative` is ‖ΔW − ΔW'‖ / ‖ΔW‖; None where one of the adapters leaves the module as it is.

    `overlap_out` and the angles (degrees, smallest and largest) are of the column spaces, which is where updates write;
    `overlap_in` is of the row spaces, which is what they read.
    """

    path: str
    rank: int
    other_rank: int
    norm: float
    other_norm: float
    relative: float | None = None
    cosine: float | None = None
    overlap_out: float | None = None
    overlap_in: float | None = None
    smallest_angle: float | None = None
    largest_angle: float | None = None


@dataclass(frozen=True)
class Difference:
    """All modules of either, and the same over all of them together."""

    modules: tuple[ModuleDifference, ...]
    norm: float
    other_norm: float
    relative: float | None
    cosine: float | None


def difference(one: LoraWeights, other: LoraWeights) -> Difference:
    """Compare two adapters of one base; AdapterError where they change a module of different shapes."""
    ours, theirs = updates_of(one), updates_of(other)
    paths = list(dict.fromkeys([*ours, *theirs]))
    for path in ours.keys() & theirs.keys():
        if ours[path].shape != theirs[path].shape:
            raise AdapterError(
                f"{path} is {ours[path].shape} in one and {theirs[path].shape} in the other",
                next_step="compare adapters of one base model",
            )
    modules = tuple(_module(path, ours.get(path), theirs.get(path)) for path in paths)
    norm = math.hypot(*(module.norm for module in modules))
    other_norm = math.hypot(*(module.other_norm for module in modules))
    nothing = {path: _nothing_like(ours.get(path) or theirs[path]) for path in paths}
    product = math.fsum(inner(ours[path], theirs[path]) for path in paths if path in ours and path in theirs)
    return Difference(
        modules,
        norm,
        other_norm,
        deviation({**nothing, **theirs}, {**nothing, **ours}).total if norm else None,
        product / (norm * other_norm) if norm and other_norm else None,
    )


def _module(path: str, ours: Update | None, theirs: Update | None) -> ModuleDifference:
    norm, other_norm = (update.norm() if update else 0.0 for update in (ours, theirs))
    sizes = (path, ours.rank if ours else 0, theirs.rank if theirs else 0, norm, other_norm)
    if not (ours and theirs and norm and other_norm):
        return ModuleDifference(*sizes)
    (columns, rows), (other_columns, other_rows) = ours.spaces(), theirs.spaces()
    cosines = _cosines(columns, other_columns)
    return ModuleDifference(
        *sizes,
        relative=deviation({path: theirs}, {path: ours}).total,
        cosine=inner(ours, theirs) / (norm * other_norm),
        overlap_out=float(cosines.square().mean()),
        overlap_in=float(_cosines(rows, other_rows).square().mean()),
        smallest_angle=math.degrees(math.acos(cosines[0])),
        largest_angle=math.degrees(math.acos(cosines[-1])),
    )


def _cosines(basis: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Cosines of the principal angles between two spaces, falling (Björck and Golub 1973)."""
    return torch.linalg.svdvals(basis.T @ other).clamp(0.0, 1.0)


def _nothing_like(update: Update) -> Update:
    return Update(update.down[:0], update.up[:, :0])
