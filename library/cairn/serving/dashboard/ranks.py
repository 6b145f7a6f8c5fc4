"""What a run's `ranks.jsonl` says, as heat maps: the rank of every module now, and of every layer over the steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cairn.serving.dashboard.grid import LAYER, grid
from cairn.training.lines import read_lines

COLUMNS = 10
"""Steps that are shown at most: the first, the last and some between."""


def rank_maps(path: Path) -> list[dict[str, str]]:
    """Title and SVG of each; none where ranks do not change."""
    lines = read_lines(path)
    if not lines:
        return []
    last = lines[-1]
    return [
        {"title": f"Rank of every module after step {last['step']}", "svg": grid(last["ranks"])},
        {"title": "Mean rank of every layer after some steps", "svg": grid(_over_time(lines))},
    ]


def _over_time(lines: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Layer and step, written as the path of a module → mean rank."""
    chosen = sorted({round(i * (len(lines) - 1) / (COLUMNS - 1)) for i in range(COLUMNS)})
    found = {}
    for line in (lines[i] for i in chosen):
        layers: dict[str, list[float]] = {}
        for path, rank in line["ranks"].items():
            match = LAYER.fullmatch(path)
            layers.setdefault(match["number"] if match else "-", []).append(rank)
        for layer, ranks in layers.items():
            found[f"layers.{layer}.step {line['step']}"] = sum(ranks) / len(ranks)
    return found
