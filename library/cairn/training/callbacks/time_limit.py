"""Pauses a run in time: `training.max_seconds`, counted from the start of the command (`started` in `state.json`).

The run is marked as stopped, with a checkpoint of its last step; the same command goes on from there. Cost, where a
limit is set: one number is shared by the workers at each step, for all must stop at the same one.
"""

from __future__ import annotations

import time

from cairn.training.callback import Callback, End, Figures
from cairn.training.run import Run
from cairn.training.state import read_state


class TimeLimit(Callback):
    """A worker that was replaced meanwhile gets no new time; a new start does."""

    def start(self, run: Run, *, resumed_at: int) -> None:
        """Note when the command began."""
        self.started = read_state(run.recipe.run_path).get("started", time.time())

    def decide(self, run: Run, step: int, figures: Figures) -> End | None:
        """The end of this start once the time is over, unless this is the last step anyway."""
        limit = run.recipe.training.max_seconds
        if limit is None or step == run.total_steps or run.engine.largest(time.time() - self.started) < limit:
            return None
        return End(f"training.max_seconds = {limit:g} were over", finished=False)
