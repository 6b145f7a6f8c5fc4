"""A run's metrics on their way to the trackers and to `state.json`; rank 0 writes, the others are silent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from cairn.plugins import TRACKERS
from cairn.training.run import Run
from cairn.training.state import RUNNING, read_state, write_state


class Journal:
    """Open from the first step to the last. What was written for steps after `resumed_at` is taken back."""

    def __init__(self, run: Run, *, resumed_at: int) -> None:
        self.run = run
        before = read_state(run.recipe.run_path)
        self.latest: dict[str, Any] = before["metrics"] if before.get("step") == resumed_at else {}
        names = run.recipe.training.trackers if run.session.rank == 0 else ()
        self.trackers = [TRACKERS.load(name)() for name in names]
        for tracker in self.trackers:
            tracker.open(run.recipe.run_path, resumed_at=resumed_at)
        self._state(resumed_at)

    def write(self, step: int, figures: Mapping[str, float]) -> None:
        """One step's figures; one that is not a number is kept as null."""
        finite = {name: value if math.isfinite(value) else None for name, value in figures.items()}
        for tracker in self.trackers:
            tracker.write(step, finite)
        self.latest |= finite
        self._state(step)

    def _state(self, step: int) -> None:
        if self.run.session.rank == 0:
            total = self.run.total_steps
            write_state(self.run.recipe.run_path, RUNNING, step=step, steps=total, metrics=self.latest)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for tracker in self.trackers:
            tracker.close()
