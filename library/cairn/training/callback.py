"""What a callback is: something that looks at a run at its hook points, adds figures, and may end it.

Every worker calls every hook in the same order. What a hook returns must be the same on each, where nothing else is
said: reduce first (`run.engine.reduce`, `.total`, `.largest`). Nothing else of a run is a hook's to change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn.plugins import Plugin

Figures = Mapping[str, float | str]
"""What a step has to show: numbers, and texts for those trackers that take them."""


@dataclass(frozen=True)
class End:
    """Why a run ends at this step. `finished`: its adapter is written; else a later start of the recipe goes on."""

    reason: str
    finished: bool


class Callback(Plugin):
    """The callbacks of `training/callbacks/` look into the recipe for what they have to do; those of a recipe's
    `training.callbacks` have a Config. `run` is a `cairn.training.run.Run`, steps count from 1."""

    def start(self, run: Any, *, resumed_at: int) -> None:
        """Before the first step of this start, after `restore`. May refuse the run (UserError)."""

    def before_step(self, run: Any, step: int, batches: Sequence[Any]) -> None:
        """This worker's micro-batches of the step (`cairn.data.batch.Batch`), to look at."""

    def after_step(self, run: Any, step: int, figures: Figures) -> Figures:
        """After the optimizer step. `figures` are the step's own; those returned are logged with them, and a step
        with such figures is always logged."""
        return {}

    def late(self, run: Any, *, wait: bool) -> Mapping[int, Figures]:
        """Figures of earlier steps that have become known since, on the first worker; all of them with `wait`."""
        return {}

    def decide(self, run: Any, step: int, figures: Figures) -> End | None:
        """After all `after_step`, with everything the step has to show. May end the run after this step."""
        return None

    def state(self) -> dict[str, Any]:
        """What a later start must know, as JSON; kept with each checkpoint, from the first worker."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what `state` gave at the checkpoint from which the run goes on."""

    def finish(self, run: Any, adapter: Path) -> dict[str, Any]:
        """The run is over and its result written into `adapter`, not yet seen by anyone; the first worker alone calls
        it. May change the folder; what is returned replaces entries of its `run.json`."""
        return {}
