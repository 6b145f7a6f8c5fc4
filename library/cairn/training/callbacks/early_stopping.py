"""Ends a run that no longer gets better: `training.early_stopping`."""

from __future__ import annotations

import math
from typing import Any

from cairn.training.callback import Callback, End, Figures
from cairn.training.goal import improves, reading
from cairn.training.run import Run


class EarlyStopping(Callback):
    """Counts the readings since the last that was better than all before it by more than `min_delta`."""

    best: float | None = None
    waited: int = 0

    def decide(self, run: Run, step: int, figures: Figures) -> End | None:
        """The end when `patience` readings in a row were no improvement; one that is not a number is none."""
        wanted = run.recipe.training.early_stopping
        value = reading(run, wanted, step, figures)
        if wanted is None or value is None:
            return None
        if math.isfinite(value) and improves(value, self.best, mode=wanted.mode, by=wanted.min_delta):
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        if self.waited < wanted.patience:
            return None
        return End(f"{wanted.metric} has not improved on {self.best} in {self.waited} readings", finished=True)

    def state(self) -> dict[str, Any]:
        """What was best, and how long ago."""
        return {"best": self.best, "waited": self.waited}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on counting."""
        self.best, self.waited = state["best"], state["waited"]
