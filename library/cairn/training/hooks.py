"""The callbacks of one run, called together at each hook point, in the order of their names, the recipe's own last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cairn.data.batch import Batch
from cairn.plugins import CALLBACKS
from cairn.training.callback import Callback, End, Figures
from cairn.training.run import Run

END = "end"


class Hooks:
    """`states` are what `state` gave at the checkpoint from which the run goes on. `end` is why it ends, if it does."""

    def __init__(self, run: Run, states: Mapping[str, Any], *, resumed_at: int) -> None:
        self.run = run
        ours = {name: CALLBACKS.load(name)() for name in CALLBACKS.names()}
        theirs = {choice.name: CALLBACKS.make(choice) for choice in run.recipe.training.callbacks}
        self.callbacks: dict[str, Callback] = ours | theirs
        self.end = End(**states[END]) if END in states else None
        for name, callback in self.callbacks.items():
            if name in states:
                callback.restore(states[name])
            callback.start(run, resumed_at=resumed_at)

    def before_step(self, step: int, batches: Sequence[Batch]) -> None:
        """Show the step's batches."""
        for callback in self.callbacks.values():
            callback.before_step(self.run, step, batches)

    def after_step(self, step: int, figures: Figures) -> dict[str, float | str]:
        """The figures that the callbacks add; afterwards `end` says whether this was the last step."""
        seen: dict[str, float | str] = {}
        for callback in self.callbacks.values():
            seen |= callback.after_step(self.run, step, figures)
        known = {**figures, **seen}
        decisions = [callback.decide(self.run, step, known) for callback in self.callbacks.values()]
        self.end = next((end for end in decisions if end), None)
        return seen

    def late(self, *, last: bool) -> dict[int, dict[str, float | str]]:
        """Figures of earlier steps that have become known; at the last step all, unless the run only pauses."""
        wait = last and (self.end is None or self.end.finished)
        found: dict[int, dict[str, float | str]] = {}
        for callback in self.callbacks.values():
            for step, figures in callback.late(self.run, wait=wait).items():
                found.setdefault(step, {}).update(figures)
        return found

    def state(self) -> dict[str, Any]:
        """For the checkpoint; a run that ended for good stays ended."""
        states = {name: callback.state() for name, callback in self.callbacks.items()}
        kept = {name: state for name, state in states.items() if state}
        return {**kept, END: asdict(self.end)} if self.end and self.end.finished else kept

    def finish(self, adapter: Path) -> dict[str, Any]:
        """What the callbacks say of the result, on the first worker."""
        return {key: value for callback in self.callbacks.values() for key, value in self._finish(callback, adapter)}

    def _finish(self, callback: Callback, adapter: Path) -> list[tuple[str, Any]]:
        return list(callback.finish(self.run, adapter).items())
