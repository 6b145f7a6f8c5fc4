"""One adapter made of several, by the weights given, with its distance from the wanted sum Σ wᵢ·ΔWᵢ.

Every way is measured by the same yardstick; the default, cat, is exact. A module that an adapter lacks counts as
unchanged by it. The weights are kept in fp32, whatever the adapters' own precision.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from cairn.adapters.combining import UNCUT, WAYS, Knobs, Term
from cairn.adapters.factors import Deviation, Update, deviation, inner, updates_of, weighted_sum
from cairn.adapters.files import MAX_RANK, LoraWeights
from cairn.adapters.plain import plain_lora
from cairn.errors import AdapterError, did_you_mean

DENSITY = 0.5
ROUNDING = 1e-7
"""A sum this much smaller than its parts, which are fp32 at best, is nothing but their rounding."""


@dataclass(frozen=True)
class Combined:
    """The new adapter, and the sum that was wanted, by path."""

    weights: LoraWeights
    wanted: dict[str, Update]

    @cached_property
    def error(self) -> Deviation:
        """How far it is from that; costs more than the sum itself, so it is measured when it is asked for."""
        return deviation(updates_of(self.weights), self.wanted)


def combine(
    adapters: Sequence[LoraWeights],
    weights: Sequence[float],
    *,
    how: str = "cat",
    rank: int | None = None,
    density: float = DENSITY,
    seed: int = 0,
) -> Combined:
    """Combine `adapters` by one of `cairn.adapters.combining.WAYS`.

    `rank` (default: the largest of theirs) is what svd, ties, dare and magnitude_prune are cut to, `density` the share
    of numbers that the last three keep, `seed` dare's chance. Adapters that score combine with each other only: their
    heads begin at zero, so a head is an update too, and is added by the same weights.
    Raises AdapterError with every reason against it.
    """
    found = [updates_of(adapter) for adapter in adapters]
    problems = list(_problems(adapters, weights, found, how=how, rank=rank, density=density))
    if problems:
        raise AdapterError(
            "the adapters cannot be combined: " + "; ".join(problems),
            next_step="how: cat is exact; svd and a rank keep it small",
        )
    knobs = Knobs(rank or max(adapter.rank for adapter in adapters), density, torch.Generator().manual_seed(seed))
    made, wanted = {}, {}
    for path in dict.fromkeys(path for updates in found for path in updates):
        terms = [
            Term(weight, updates[path], adapter.scaling[path])
            for adapter, weight, updates in zip(adapters, weights, found, strict=True)
            if path in updates
        ]
        wanted[path] = weighted_sum([(term.weight, term.update) for term in terms])
        made[path] = WAYS[how](terms, knobs)
    _require_something(wanted, weights, found)
    return Combined(_lora(made, adapters, weights), wanted)


def _require_something(wanted: dict[str, Update], weights: Sequence[float], found: Sequence[dict[str, Update]]) -> None:
    parts = [
        w * w * inner(update, update) for w, updates in zip(weights, found, strict=True) for update in updates.values()
    ]
    if math.fsum(inner(update, update) for update in wanted.values()) <= ROUNDING**2 * math.fsum(parts):
        raise AdapterError("the weighted updates cancel out: the sum is the base", next_step="choose other weights")


def _lora(made: dict[str, Update], adapters: Sequence[LoraWeights], weights: Sequence[float]) -> LoraWeights:
    head = None
    if adapters[0].head is not None:
        heads = [adapter.head.double() for adapter in adapters if adapter.head is not None]
        head = torch.stack([weight * one for weight, one in zip(weights, heads, strict=True)]).sum(0).float()
    transposed = any(adapter.config.get("fan_in_fan_out") for adapter in adapters)
    layers = {path: (update.down.float(), update.up.float()) for path, update in made.items()}
    return plain_lora(layers, transposed=transposed, head=head)


def _problems(
    adapters: Sequence[LoraWeights],
    weights: Sequence[float],
    found: Sequence[dict[str, Update]],
    *,
    how: str,
    rank: int | None,
    density: float,
) -> Iterator[str]:
    if how not in WAYS:
        yield f"there is no way '{how}', {did_you_mean(how, WAYS)}"
    if not adapters or len(adapters) != len(weights):
        yield f"{len(adapters)} adapters and {len(weights)} weights were given"
        return
    if not all(math.isfinite(weight) and weight for weight in weights):
        yield f"each weight must be a number other than zero, not {', '.join(f'{weight:g}' for weight in weights)}"
    if len({adapter.head is None for adapter in adapters}) > 1:
        yield "some speak and some score"
    if rank is not None and (how in UNCUT or not 0 < rank <= MAX_RANK):
        yield f"{how} leaves no choice of a rank" if how in UNCUT else f"rank {rank} is not from 1 to {MAX_RANK}"
    if not 0 < density <= 1:
        yield f"density {density:g} is not above 0 and at most 1"
    yield from _misfits(adapters, found, how)


def _misfits(adapters: Sequence[LoraWeights], found: Sequence[dict[str, Update]], how: str) -> Iterator[str]:
    for path in dict.fromkeys(path for updates in found for path in updates):
        here = [updates[path] for updates in found if path in updates]
        shapes = sorted({update.shape for update in here})
        ranks = sorted({update.rank for update in here})
        if len(shapes) > 1:
            yield f"{path} maps {' and '.join(f'{i} → {o}' for o, i in shapes)} features: these are of different bases"
            return
        if how == "linear" and len(ranks) > 1:
            yield f"linear adds A and B separately and needs equal ranks, {path} has {', '.join(map(str, ranks))}"
            return
        if how == "cat" and sum(update.rank for update in here) > MAX_RANK:
            yield f"cat would give {path} rank {sum(u.rank for u in here)}, at most {MAX_RANK} can be read"
            return
