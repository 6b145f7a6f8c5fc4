"""A JSON Lines file of a run in which every line belongs to a step, and no step stands twice after a restart.

What becomes known of a step later stands in a line of its own, which readers merge with the first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cairn.training.state import replace_text


class StepLines:
    """Opened where a run begins or goes on: whole lines up to `resumed_at` are kept, the rest is taken back.

    A line is flushed when it is written, so a killed worker leaves no gap. The file appears with its first line.
    """

    def __init__(self, path: Path, *, resumed_at: int) -> None:
        self.path = path
        if path.exists():
            kept = [line for line in read_lines(path) if line["step"] <= resumed_at]
            replace_text(path, "".join(json.dumps(line) + "\n" for line in kept))

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Append one line."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All lines in order; one that is still being written is left out, and a missing file has none."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]
