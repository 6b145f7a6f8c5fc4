"""What a tracker is: a sink for metrics that holds each step exactly once, whatever was restarted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cairn.plugins import Plugin


class Tracker(Plugin):
    """Lives on rank 0 of a run. What `open` raises ends the run before its first step; what `write` raises does not."""

    def open(self, run: Any, *, resumed_at: int) -> None:
        """Begin or go on; what was written for steps after `resumed_at` is taken back, or not written again.

        `run` is a `cairn.training.run.Run`: its recipe, its folder (`run.recipe.run_path`), its session.
        """
        raise NotImplementedError

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """One step's metrics; a value that is no number is None. A step may come again with figures that were not known
        at its time (held-out ones that were scored elsewhere)."""
        raise NotImplementedError

    def write_text(self, step: int, name: str, text: str) -> None:
        """A text of this step, such as samples of what the model says; a tracker of numbers leaves it."""

    def close(self) -> None:
        """Flush."""
