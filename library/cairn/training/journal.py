"""A run's figures on their way to the trackers and to `state.json`; rank 0 writes, the others are silent.

A tracker that cannot begin refuses the run; one that fails later is told of once, counted in `state.json`
(`tracker_failures`), and tried again at the next step: no service that is down costs a run.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from cairn.errors import CairnError, UserError
from cairn.plugins import TRACKERS
from cairn.training.run import Run
from cairn.training.state import RUNNING, read_state, write_state
from cairn.training.tracker import Tracker

log = logging.getLogger(__name__)


class Journal:
    """Open from the first step to the last. What was written for steps after `resumed_at` is taken back."""

    def __init__(self, run: Run, *, resumed_at: int) -> None:
        self.run = run
        before = read_state(run.recipe.run_path)
        self.latest: dict[str, Any] = before["metrics"] if before.get("step") == resumed_at else {}
        self.failures: Counter[str] = Counter()
        self.step = resumed_at
        chosen = run.recipe.training.trackers if run.session.rank == 0 else ()
        self.trackers: dict[str, Tracker] = {choice.name: TRACKERS.make(choice) for choice in chosen}
        for name, tracker in self.trackers.items():
            _open(name, tracker, run, resumed_at)
        self._state(resumed_at)

    def write(self, step: int, figures: Mapping[str, float | str]) -> None:
        """One step's figures; one that is not a number is kept as null, a text goes to the trackers that take it."""
        texts = {name: value for name, value in figures.items() if isinstance(value, str)}
        numbers = {name: value for name, value in figures.items() if not isinstance(value, str)}
        finite = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
        for name, tracker in self.trackers.items():
            for key, text in texts.items():
                self._try(name, tracker.write_text, step, key, text)
            self._try(name, tracker.write, step, finite)
        self.latest |= finite
        self._state(max(step, self.step))

    def _try(self, name: str, call: Callable[..., None], *values: Any) -> None:
        try:
            call(*values)
        except Exception as error:
            if not self.failures[name]:
                log.warning("the tracker '%s' failed (%s: %s); the run goes on", name, type(error).__name__, error)
            self.failures[name] += 1

    def _state(self, step: int) -> None:
        self.step = step
        if self.run.session.rank == 0:
            failed = {"tracker_failures": dict(self.failures)} if self.failures else {}
            total = self.run.total_steps
            write_state(self.run.recipe.run_path, RUNNING, step=step, steps=total, metrics=self.latest, **failed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for name, tracker in self.trackers.items():
            self._try(name, tracker.close)


def _open(name: str, tracker: Tracker, run: Run, resumed_at: int) -> None:
    """Begin or go on; whatever is in the way is the user's to mend before a step was done."""
    try:
        tracker.open(run, resumed_at=resumed_at)
    except CairnError:
        raise
    except ImportError as error:
        raise UserError(
            f"the tracker '{name}' needs a package that is not installed ({error})",
            where="training.trackers",
            next_step="install cairn[track] on every node, or leave the tracker out",
        ) from error
    except Exception as error:
        raise UserError(
            f"the tracker '{name}' cannot start: {type(error).__name__}: {error}",
            where="training.trackers",
            next_step="mend its settings, or leave it out",
        ) from error
