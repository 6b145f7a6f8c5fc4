"""What a tracker is: a sink for metrics that holds each step exactly once, whatever was restarted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cairn.plugins import Plugin


class Tracker(Plugin):
    """Lives on rank 0 of a run."""

    def open(self, run_path: Path, *, resumed_at: int) -> None:
        """Begin or go on; what was written for steps after `resumed_at` is taken back."""
        raise NotImplementedError

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """One step's metrics."""
        raise NotImplementedError

    def close(self) -> None:
        """Flush."""
