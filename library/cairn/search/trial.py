"""One trial: an ordinary training run with its own folder, its reports streamed to Ray Tune.

The run's name is the trial's, so a trial that is started again goes on from its last checkpoint. Its last report waits
until the run has written its adapter: Tune may end a trial at any report.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import ray.tune

from cairn.config.load import build, with_overrides
from cairn.config.recipe import Recipe
from cairn.errors import UserError, did_you_mean
from cairn.search.bridge import ReportBridge
from cairn.search.mailbox import Report

if TYPE_CHECKING:
    from cairn.data.pipeline import Prepared

OBJECTIVE = "objective"
"""The searched metric as schedulers compare it: finite, and worst where the metric is not a number."""
WORST = 1e30


def trial_name(number: int) -> str:
    """`trial_03`."""
    return f"trial_{number:02d}"


def trial_recipe(recipe: Recipe, folder: Path, number: int, changes: Mapping[str, Any]) -> Recipe:
    """The recipe of one trial: its draw, its folder, and a checkpoint with every report."""
    settings = recipe.training
    own = {
        "storage.path": str(folder),
        "storage.run": trial_name(number),
        "storage.publish": None,
        "training.checkpoint_every": settings.checkpoint_every or settings.log_every,
    }
    return with_overrides(recipe, {**changes, **own})


def run_trial(config: dict[str, Any], *, values: dict[str, Any], folder: str, prepared: Prepared | None) -> None:
    """What Tune runs. `config["trial"]` holds number and changes, `values` the plain recipe of the search.

    `prepared`: the data, where all trials share it.
    """
    recipe = build(values)
    recipe = trial_recipe(recipe, Path(folder), config["trial"]["number"], config["trial"]["changes"])
    training = Training(recipe, prepared)
    training.start()
    held: Report | None = None
    known: dict[str, Any] = {}
    for metrics, checkpoint in training.bridge.reports(training):
        known = {**known, **metrics}
        if metrics["step"] >= training.total_steps():
            held = (known, checkpoint)
        else:
            _report(recipe, known, checkpoint, finished=False)
    known, checkpoint = training.outcome(held)
    _report(recipe, known, checkpoint, finished=True)


class Training(Thread):
    """`cairn.training.trainer.train` in a thread of its own, so that the trial's thread can talk to Tune."""

    def __init__(self, recipe: Recipe, prepared: Prepared | None) -> None:
        super().__init__(name="training", daemon=True)
        self.recipe, self.prepared = recipe, prepared
        self.bridge = ReportBridge()
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Train; what happens is kept for `outcome`."""
        from cairn.training.trainer import train

        try:
            self.result = train(self.recipe, self.prepared, callbacks=[self.bridge])
        except BaseException as error:
            self.error = error

    def total_steps(self) -> float:
        """As the run itself says in its state."""
        from cairn.training.state import read_state

        return read_state(self.recipe.run_path).get("steps", math.inf)

    def outcome(self, held: Report | None) -> Report:
        """The last report after the run has ended; raises what ended it.

        A run that had already finished when its trial was started again reports nothing, so its result stands in.
        """
        self.join()
        if self.error is not None:
            raise self.error
        if held is not None:
            return held
        newest = max((self.recipe.run_path / "checkpoints").glob("step_*"))
        return {**self.result.metrics, "step": self.result.steps}, str(newest)


def _report(recipe: Recipe, metrics: Mapping[str, Any], checkpoint: str, *, finished: bool) -> None:
    objective = _objective(recipe, metrics)
    reached = math.ceil(metrics["step"] / recipe.training.checkpoint_every)
    numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    ray.tune.report(
        {**numbers, OBJECTIVE: objective, "reports": reached, "finished": finished},
        checkpoint=ray.tune.Checkpoint(checkpoint),
    )


def _objective(recipe: Recipe, metrics: Mapping[str, Any]) -> float:
    name = recipe.search.metric
    if name not in metrics:
        raise UserError(
            f"the trial reports no '{name}'",
            where="search.metric",
            next_step=f"{did_you_mean(name, metrics)} (held-out figures need data.validation and training.evaluate_every)",
        )
    value = metrics[name]
    if value is None or not math.isfinite(value):
        return WORST if recipe.search.mode == "min" else -WORST
    return float(value)
