"""A metric is a sum and a weight: added up across micro-batches, workers and steps, divided once, last.

A mean of means is wrong as soon as the parts differ in size; nothing below the loop divides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """`total` in the metric's own unit, `weight` in what it is counted per (tokens, rows, pairs)."""

    total: float
    weight: float

    def __add__(self, other: Metric) -> Metric:
        return Metric(self.total + other.total, self.weight + other.weight)

    @property
    def value(self) -> float:
        """total / weight; not-a-number where nothing was counted."""
        return self.total / self.weight if self.weight else float("nan")


def merge(parts: Iterable[Mapping[str, Metric]]) -> dict[str, Metric]:
    """The union of the names, each the sum of its parts."""
    merged: dict[str, Metric] = {}
    for part in parts:
        for name, metric in part.items():
            merged[name] = merged[name] + metric if name in merged else metric
    return merged
