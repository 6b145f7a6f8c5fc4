"""`metrics.jsonl`: one JSON object a logged step, each step exactly once however often the run was restarted."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cairn.training.lines import StepLines, read_lines
from cairn.training.tracker import Tracker

METRICS = "metrics.jsonl"


class Jsonl(Tracker):
    """A line is flushed before the step's checkpoint is reported, so a killed worker leaves no gap."""

    def open(self, run: Any, *, resumed_at: int) -> None:
        """Keep the whole lines up to `resumed_at`, drop the rest."""
        path = run.recipe.run_path / METRICS
        path.touch()
        self._lines = StepLines(path, resumed_at=resumed_at)

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Append one line: step, time (Unix seconds), and the values."""
        self._lines.write(step, {"time": time.time(), **values})


def read_metrics(run_path: Path) -> list[dict[str, Any]]:
    """All logged steps of a run, in order, with what became known later; a line still being written is left out."""
    steps: dict[int, dict[str, Any]] = {}
    for line in read_lines(run_path / METRICS):
        first = steps.setdefault(line["step"], line)
        first |= {name: value for name, value in line.items() if name != "time"}
    return list(steps.values())
