"""How well a router chooses, on prompts that it has not learned from: what is right, what is mixed up, what is left.

`accuracy` asks which adapter is likeliest, whatever the threshold; `routed_accuracy` of those above it only, and
`abstention` is the share below it, which the base answers. Everything is a count first; shares of nothing are None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cairn.adapters.routing.router import Router


@dataclass(frozen=True)
class Counts:
    """Prompts of one adapter, or of all: how many, how many likeliest right, routed, and routed right."""

    prompts: int
    right: int
    routed: int
    routed_right: int

    @property
    def shares(self) -> dict[str, float | None]:
        """The figures of the module's text."""
        return {
            "accuracy": _share(self.right, self.prompts),
            "abstention": _share(self.prompts - self.routed, self.prompts),
            "routed_accuracy": _share(self.routed_right, self.routed),
        }


@dataclass(frozen=True)
class Evaluation:
    """`confusion[i][j]`: prompts of adapter i that were routed to adapter j; the last j is the base."""

    adapters: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]
    each: tuple[Counts, ...]

    @property
    def all(self) -> Counts:
        """Over all prompts."""
        return Counts(
            *(sum(getattr(one, name) for one in self.each) for name in ("prompts", "right", "routed", "routed_right"))
        )

    def plain(self) -> dict[str, Any]:
        """As JSON would have it."""
        return {
            "prompts": self.all.prompts,
            **self.all.shares,
            "adapters": {
                name: {"prompts": counts.prompts, **counts.shares}
                for name, counts in zip(self.adapters, self.each, strict=True)
            },
            "confusion": {
                name: dict(zip((*self.adapters, "base"), row, strict=True))
                for name, row in zip(self.adapters, self.confusion, strict=True)
            },
        }


def evaluate_router(router: Router, features: torch.Tensor, labels: Sequence[int]) -> Evaluation:
    """features: fp32 [prompts, width]; labels: the place in `router.adapters` of each prompt's own."""
    likeliest = router.classifier.scores(features).argmax(-1).tolist()
    columns = {None: len(router.adapters)} | {name: place for place, name in enumerate(router.adapters)}
    went = [columns[choice] for choice in router.choose(features)]
    confusion = [[0] * len(columns) for _ in router.adapters]
    right = [0] * len(router.adapters)
    for label, best, place in zip(labels, likeliest, went, strict=True):
        confusion[label][place] += 1
        right[label] += best == label
    each = tuple(Counts(sum(row), right[label], sum(row[:-1]), row[label]) for label, row in enumerate(confusion))
    return Evaluation(router.adapters, tuple(map(tuple, confusion)), each)


def _share(count: int, of: int) -> float | None:
    return count / of if of else None
