"""`metrics.jsonl`: one JSON object a logged step, each step exactly once however often the run was restarted."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from cairn.training.state import replace_text
from cairn.training.tracker import Tracker

METRICS = "metrics.jsonl"


class Jsonl(Tracker):
    """A line is flushed before the step's checkpoint is reported, so a killed worker leaves no gap."""

    _file: IO[str]

    def open(self, run_path: Path, *, resumed_at: int) -> None:
        """Keep the whole lines up to `resumed_at`, drop the rest."""
        path = run_path / METRICS
        kept = [line for line in _lines(path) if line["step"] <= resumed_at]
        replace_text(path, "".join(json.dumps(line) + "\n" for line in kept))
        self._file = path.open("a", encoding="utf-8")

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Append one line: step, time (Unix seconds), and the values."""
        self._file.write(json.dumps({"step": step, "time": time.time(), **values}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(run_path: Path) -> list[dict[str, Any]]:
    """All logged steps of a run, in order; a line that is still being written is left out."""
    return _lines(run_path / METRICS)


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [
        json.loads(line) for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line[-1:] == "\n"
    ]
