"""What a callback is: something that looks at a run between steps and may add figures to the step's metrics."""

from __future__ import annotations

from typing import Any

from cairn.plugins import Plugin


class Callback(Plugin):
    """Every callback found takes part in every run, on every worker, and reads from the recipe what it has to do."""

    def start(self, run: Any) -> None:
        """Before the first step; `run` is a `cairn.training.run.Run`."""

    def after_step(self, run: Any, step: int) -> dict[str, float]:
        """After optimizer step `step` (from 1); the figures returned, the same on every worker, are logged with it."""
        return {}
