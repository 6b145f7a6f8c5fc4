"""A LoRA cut to a smaller rank, module by module, by the SVD of its update: the nearest that there is of that rank.

The error is exact, and costs no more than the cut: nothing of the size of a weight is formed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cairn.adapters.factors import Deviation, Update, deviation, updates_of
from cairn.adapters.files import LoraWeights
from cairn.adapters.plain import plain_lora
from cairn.errors import AdapterError


@dataclass(frozen=True)
class Pruned:
    """The smaller adapter and how far it is from the whole one."""

    weights: LoraWeights
    error: Deviation


def prune(weights: LoraWeights, *, rank: int | None = None, energy: float | None = None) -> Pruned:
    """Cut to `rank`, or to the smallest rank that keeps `energy`, a share of Σσ² (0.99: an error of at most 0.1).

    A module that is of that rank already stays as it is. AdapterError unless exactly one is given, and in its bounds.
    """
    if (rank is None) == (energy is None):
        raise AdapterError("a rank or an energy is wanted, one of them", next_step="as in --rank 4, or --energy 0.99")
    if rank is not None and rank < 1:
        raise AdapterError(f"rank {rank} is not above 0", next_step="as in --rank 4")
    if energy is not None and not 0 < energy <= 1:
        raise AdapterError(f"energy {energy:g} is not above 0 and at most 1", next_step="as in --energy 0.99")
    whole = updates_of(weights)
    layers, scaling = {}, {}
    for path, update in whole.items():
        goal = rank if rank is not None else _rank_for(update, energy or 1.0)
        if goal >= update.rank:
            layers[path], scaling[path] = weights.layers[path], weights.scaling[path]
        else:
            cut = update.truncated(goal)
            dtype = weights.layers[path][0].dtype
            layers[path], scaling[path] = (cut.down.to(dtype), cut.up.to(dtype)), 1.0
    transposed = bool(weights.config.get("fan_in_fan_out"))
    result = plain_lora(layers, scaling=scaling, transposed=transposed, head=weights.head)
    return Pruned(result, deviation(updates_of(result), whole))


def _rank_for(update: Update, energy: float) -> int:
    """The smallest rank that keeps the share, at least 1; a hair below it counts, as the sums are rounded."""
    squares = update.svd()[1].square()
    kept = squares.cumsum(0)
    reached = kept >= energy * kept[-1] * (1 - 1e-12)
    return int(torch.argmax(reached.int())) + 1
