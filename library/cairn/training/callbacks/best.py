"""Keeps the adapter of the step where a figure was best, and makes it the run's result: `training.best`.

`best/step_…/` in the run folder is an adapter as `adapter/` is, whole or absent, beside the newest checkpoints that are
kept for going on. A folder goes when a checkpoint that knows a better one is safe. Cost: one adapter (for full training
one model) written at each improvement.
"""

from __future__ import annotations

import math
import shutil
from collections import deque
from pathlib import Path
from typing import Any

from cairn.training.callback import Callback, End, Figures
from cairn.training.checkpoint import checkpoint_name, save_adapter
from cairn.training.goal import improves, reading
from cairn.training.run import Run

BEST = "best"
CHECKPOINTS_BACK = 2
"""A checkpoint may still be on its way to the storage when the next one is written."""


class Best(Callback):
    """`figures` are those of step `step`, the best one so far."""

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.step = 0
        self.figures: dict[str, float] = {}
        self.known: deque[int] = deque(maxlen=CHECKPOINTS_BACK)

    def decide(self, run: Run, step: int, figures: Figures) -> End | None:
        """Keep the adapter when the figure is better than ever; ends nothing."""
        goal = run.recipe.training.best
        value = reading(run, goal, step, figures)
        if goal and value is not None and math.isfinite(value):
            before = self.figures.get(goal.metric)
            if improves(value, before, mode=goal.mode):
                self.step = step
                self.figures = {name: x for name, x in figures.items() if not isinstance(x, str)}
                self._keep(run)
        return None

    def state(self) -> dict[str, Any]:
        """The best step and its figures; nothing without one."""
        if self.step:
            self.known.append(self.step)
        return {"step": self.step, "figures": self.figures} if self.step else {}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from the best step that the checkpoint knew."""
        self.step, self.figures = state["step"], state["figures"]
        self.known.append(self.step)

    def finish(self, run: Run, adapter: Path) -> dict[str, Any]:
        """Put the best adapter in the place of the last."""
        if not self.step:
            return {}
        shutil.rmtree(adapter)
        shutil.copytree(_folder(run, self.step), adapter)
        self._drop_others(run, {self.step})
        return {"step": self.step, "metrics": {name: x for name, x in self.figures.items() if math.isfinite(x)}}

    def _keep(self, run: Run) -> None:
        target = _folder(run, self.step)
        draft = target.with_name(f".{target.name}")
        if run.session.rank == 0:
            shutil.rmtree(draft, ignore_errors=True)
            shutil.rmtree(target, ignore_errors=True)
        save_adapter(run, draft)
        if run.session.rank == 0:
            draft.rename(target)
            self._drop_others(run, {self.step, *self.known})

    def _drop_others(self, run: Run, wanted: set[int]) -> None:
        names = {checkpoint_name(step) for step in wanted}
        for folder in (run.recipe.run_path / BEST).iterdir():
            if folder.name not in names:
                shutil.rmtree(folder)


def _folder(run: Run, step: int) -> Path:
    folder: Path = run.recipe.run_path / BEST / checkpoint_name(step)
    return folder
