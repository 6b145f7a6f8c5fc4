"""Metric files as curves: `metrics.jsonl`, one JSON object a line with a `step`, read while it is being written.

A last line without its newline is still on its way and waits for the next look; any other line that is not such an
object is counted, never skipped in silence. A file is parsed again only when its size or time has changed.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path

import msgspec

MAX_POINTS = 500
WALL_CLOCK = "time"
"""When a line was written: no curve that anyone reads."""
Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """`curves`: metric → (step, value) by step. `unreadable_lines`: complete lines that hold no step."""

    curves: dict[str, list[Point]]
    unreadable_lines: int = 0

    @property
    def step(self) -> int:
        """The last step of any curve, 0 before the first."""
        return int(max((points[-1][0] for points in self.curves.values()), default=0))

    def latest(self) -> dict[str, float]:
        """The last value of every metric."""
        return {name: points[-1][1] for name, points in self.curves.items()}

    def thinned(self, most: int = MAX_POINTS) -> dict[str, list[Point]]:
        """Every curve with at most `most` points, ends included."""
        return {name: thin(points, most) for name, points in self.curves.items()}


def read_series(path: Path) -> Series:
    """The curves of a metric file; empty when there is none yet."""
    try:
        state = path.stat()
    except FileNotFoundError:
        return Series({})
    return _parsed(path, state.st_size, state.st_mtime_ns)


@functools.lru_cache(maxsize=512)
def _parsed(path: Path, size_bytes: int, changed_ns: int) -> Series:
    lines = path.read_bytes()[:size_bytes].split(b"\n")[:-1]
    curves: dict[str, dict[float, float]] = {}
    unreadable = 0
    for line in lines:
        values = _numbers(line)
        step = values.pop("step", None)
        unreadable += step is None
        for name, value in values.items():
            if step is not None and name != WALL_CLOCK:
                curves.setdefault(name, {})[step] = value
    return Series({name: sorted(points.items()) for name, points in curves.items()}, unreadable)


def _numbers(line: bytes) -> dict[str, float]:
    """The finite numbers of one line, nested names joined by dots; empty for what is not a JSON object."""
    try:
        decoded = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return {}
    return dict(_flat(decoded, "")) if isinstance(decoded, dict) else {}


def _flat(values: dict[str, object], prefix: str) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for name, value in values.items():
        if isinstance(value, dict):
            found.extend(_flat(value, f"{prefix}{name}."))
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            found.append((f"{prefix}{name}", float(value)))
    return found


def thin(points: list[Point], most: int) -> list[Point]:
    """Evenly chosen points, first and last included."""
    if len(points) <= most:
        return points
    return [points[round(i * (len(points) - 1) / (most - 1))] for i in range(most)]
