"""What a benchmark prints, and what it measures on: every comparison is a ratio within one run."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cairn.config import home
from cairn.data.sample import build_corpus
from cairn.models.sample import fetch_smollm2


def show(
    name: str, unit: str, ours: Sequence[float], other: Sequence[float], *, against: str, goal: float | None
) -> None:
    """One JSON line: the medians over the rounds, and the median of the rounds' ratios; more is better."""
    ratio = statistics.median(mine / theirs for mine, theirs in zip(ours, other, strict=True))
    figure = {
        "name": name,
        "ours": float(f"{statistics.median(ours):.4g}"),
        "other": float(f"{statistics.median(other):.4g}"),
        "against": against,
        "unit": unit,
        "ratio": round(ratio, 3),
        "goal": goal,
        "holds": goal is None or ratio >= goal,
    }
    print(json.dumps(figure), flush=True)


def rates(sides: Mapping[str, Callable[[], object]], work: float, rounds: int) -> dict[str, list[float]]:
    """`work` a second of each side, which take turns, since machines drift."""
    found: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, run in sides.items():
            begin = time.perf_counter()
            run()
            found[side].append(work / (time.perf_counter() - begin))
    return found


def sample_model() -> Path:
    """SmolLM2-135M-Instruct under the data home, fetched where it is not there yet."""
    return fetch_smollm2(home.models())


def sample_file(name: str) -> Path:
    """A file of the sample corpus, which is built where it is not there yet."""
    build_corpus(home.samples())
    return home.samples() / name
