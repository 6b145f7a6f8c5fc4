"""Search over the keys of a recipe with Ray Tune: random draws, ASHA, every trial an ordinary training run.

    <storage.path>/searches/<name>/search.json, trials.json   the plan and the ranked table
    <storage.path>/searches/<name>/runs/<trial>/              run folders, with TensorBoard files
    <storage.path>/searches/<name>/tune/<start>/              Ray Tune's own files, checkpoints among them

A report happens at each checkpoint (training.checkpoint_every, else training.log_every), so that no report lacks one.
A killed search goes on from plain files: what was over stays, the other trials resume as runs do. Tune's own restore
is not used: it unpickles, may be ten seconds behind, and forgets its scheduler's state.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
import ray.tune
from ray.tune.schedulers import FIFOScheduler

from cairn.config.recipe import Recipe
from cairn.data.pipeline import Prepared, prepare
from cairn.errors import CairnError, UserError
from cairn.search.ladder import Ladder
from cairn.search.space import draw
from cairn.search.table import TrialTable, flat_rows, read_trials, write_plan
from cairn.search.trial import OBJECTIVE, run_trial, trial_name

TUNE_FOLDER = "tune"
KEPT_CHECKPOINTS = 3
TRIAL_MEMORY_BYTES = 1 << 20
PREPARED_FROM = ("data.", "model.", "stage.")
"""A search over such a key prepares the data anew for each trial."""
SILENCED = "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S"
"""Tune warns of how often it saves its own state, which is not used here."""


@dataclass(frozen=True)
class SearchResult:
    """`path`: the search's folder. `table`: one row a trial, the best first. `best`: the drawn keys of the best."""

    path: Path
    table: Sequence[Mapping[str, Any]]
    best: Mapping[str, Any]


def search(recipe: Recipe, *, resume: bool = True) -> SearchResult:
    """Carry out `recipe.search`; Ray is connected. A search of that name goes on where it was killed.

    Raises RecipeError for a bad space, UserError when the name is taken by another search or the cluster is too small,
    CairnError when every trial failed.
    """
    draws = draw(recipe)
    _check_capacity(recipe)
    folder = Path(recipe.storage.path) / "searches" / recipe.run_name
    if not resume and folder.exists():
        raise UserError(
            "there is a search of this name",
            where=str(folder),
            next_step="resume it, or set storage.run to another name",
        )
    write_plan(folder, recipe, draws)
    settings = recipe.search
    ladder = Ladder(
        folder, grace=settings.grace_steps, reduction=settings.reduction, sign=1.0 if settings.mode == "min" else -1.0
    )
    table = TrialTable(folder, recipe, draws, stopped=ladder.stopped)
    pending = table.pending()
    if pending:
        os.environ.setdefault(SILENCED, "0")
        # once, before several trials would do it at the same time; a stream is each trial's own
        prepared = None if recipe.data.streaming else prepare(recipe)
        _tuner(recipe, _trainable(recipe, folder, prepared), folder, pending, ladder, table).fit()
    return _result(folder, recipe)


class Asha(FIFOScheduler):
    """The ladder as Tune asks it."""

    def __init__(self, ladder: Ladder) -> None:
        super().__init__()
        self.ladder = ladder

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """After each report."""
        stop = self.ladder.stops(_name(trial), result["reports"], result[OBJECTIVE], finished=result["finished"])
        return self.STOP if stop else self.CONTINUE


def _tuner(
    recipe: Recipe,
    trainable: Any,
    folder: Path,
    pending: Sequence[Mapping[str, Any]],
    ladder: Ladder,
    table: TrialTable,
) -> ray.tune.Tuner:
    starts = len(list((folder / TUNE_FOLDER).glob("*")))
    return ray.tune.Tuner(
        trainable,
        param_space={"trial": ray.tune.grid_search(list(pending))},
        tune_config=ray.tune.TuneConfig(
            metric=OBJECTIVE,
            mode=recipe.search.mode,
            scheduler=Asha(ladder),
            max_concurrent_trials=recipe.search.concurrent,
            reuse_actors=False,  # an actor that is used again would go on with the training of the trial before
            trial_name_creator=_name,
            trial_dirname_creator=_name,
        ),
        run_config=ray.tune.RunConfig(
            name=f"start_{starts + 1:02d}",
            storage_path=str(folder / TUNE_FOLDER),
            callbacks=[table],
            checkpoint_config=ray.tune.CheckpointConfig(num_to_keep=KEPT_CHECKPOINTS),
            verbose=0,
        ),
    )


def _trainable(recipe: Recipe, folder: Path, prepared: Prepared | None) -> Any:
    """A trial itself only waits for its workers, so it takes a token amount of memory and leaves them the CPUs."""
    values = recipe.plain()
    shared = None if any(key.startswith(PREPARED_FROM) for key in recipe.search.space) else prepared

    def trial(config: dict[str, Any]) -> None:
        run_trial(config, values=values, folder=str(folder), prepared=shared)

    return ray.tune.with_resources(trial, {"memory": TRIAL_MEMORY_BYTES})


def _name(trial: Any) -> str:
    return trial_name(trial.config["trial"]["number"])


def _check_capacity(recipe: Recipe) -> None:
    """UserError when the trials at once would wait for each other's CPUs."""
    settings = recipe.training
    needed = recipe.search.concurrent * settings.most_workers * settings.cpus_per_worker
    available = ray.cluster_resources().get("CPU", 0.0)
    if needed > available:
        raise UserError(
            f"{recipe.search.concurrent} trials at once need {needed:g} CPUs, the cluster has {available:g}",
            where="search.concurrent",
            next_step="lower search.concurrent, training.workers or training.cpus_per_worker",
        )


def _result(folder: Path, recipe: Recipe) -> SearchResult:
    trials = read_trials(folder)
    failed = [trial for trial in trials if trial["status"] == "failed"]
    if len(failed) == len(trials):
        raise CairnError(
            f"all {len(trials)} trials failed, the first with: {failed[0]['problem']}",
            where=str(folder),
            next_step="run one trial alone with cairn train to see its error in full",
        )
    return SearchResult(folder, flat_rows(trials, recipe.search.metric), trials[0]["parameters"])
