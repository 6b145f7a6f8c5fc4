"""`cairn train`: prepare, train on the cluster's workers, publish when the recipe says so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cairn.cli.arguments import Overrides, RecipePath
from cairn.errors import UserError

if TYPE_CHECKING:
    from cairn.config.recipe import Recipe
    from cairn.training.folder import TrainingResult

NAME = "train"


def command(
    recipe: RecipePath,
    overrides: Overrides = None,
    find_learning_rate: bool = typer.Option(
        False, "--find-learning-rate", help="Try learning rates on the recipe's data instead, and suggest one."
    ),
) -> None:
    """Train by a recipe, or by each step of its pipeline; the same recipe run again goes on where it stopped."""
    from cairn.cluster.session import connected
    from cairn.config.pipeline import load_steps
    from cairn.training.pipeline import carry_out

    steps = load_steps(recipe, overrides or ())
    with connected(max(step.training.most_workers * step.training.cpus_per_worker for step in steps)):
        if find_learning_rate:
            find_and_tell(steps[0])
        else:
            carry_out(steps, train_and_tell)


def merge(recipe: Recipe, result: TrainingResult) -> Path:
    """What was published as one model in `merged/` of the run's folder, checked as by `cairn export`; made once."""
    from cairn.cli.terminal import say
    from cairn.plugins import EXPORTS
    from cairn.store.store import Store

    assert result.published is not None, "checked with the recipe"
    target = result.run_path / "merged"
    if not target.exists():
        version = Store(Path(recipe.storage.path) / "adapters").resolve(result.published)
        export = EXPORTS.load("safetensors")()
        for line in export.remarks(export.export(version, target)):
            say(line)
    return target


def find_and_tell(recipe: Recipe) -> None:
    """Try learning rates and show what they did; the caller is connected to Ray."""
    from cairn.cli.prepare import prepare_with_progress
    from cairn.cli.terminal import say, show_table
    from cairn.training.learning_rates import FILE, folder_of, table
    from cairn.training.trainer import find_learning_rate

    if recipe.data.streaming:
        raise UserError(
            "a stream is read once, for the run itself",
            where="data.streaming",
            next_step="set data.streaming=false data.limit=5000 to find a rate on a part",
        )
    found = find_learning_rate(recipe, prepare_with_progress(recipe))
    show_table(("learning rate", "loss, smoothed"), table(found))
    said = f"suggested: {found.suggestion:.1e}" if found.suggestion else "no rate made the loss fall"
    say(f"{said}\nall steps: {folder_of(recipe) / FILE}")


def train_and_tell(recipe: Recipe) -> TrainingResult:
    """Prepare and train; the caller is connected to Ray. Says what it found and where it lies."""
    from cairn.cli.prepare import prepare_with_progress, show_counts
    from cairn.cli.terminal import errors, say, show_table
    from cairn.training.fit import require_fit
    from cairn.training.start import pinned
    from cairn.training.trainer import train

    recipe = pinned(recipe)
    require_fit(recipe)
    if recipe.model.adapter is not None:
        errors.print(f"{recipe.stage.name} goes on from {recipe.model.adapter}")
    result = train(recipe, prepared=None if recipe.data.streaming else prepare_with_progress(recipe))
    if recipe.data.streaming:
        from cairn.data.manifest import Manifest
        from cairn.data.pipeline import STREAM

        show_counts(Manifest.read(result.run_path / STREAM))
    show_table(("metric", "value"), sorted(result.metrics.items()))
    if result.finished:
        say(f"run: {result.run_path}\nadapter: {result.adapter_path}")
        if recipe.storage.merge:
            say(f"merged: {merge(recipe, result)}")
    else:
        say(f"run: {result.run_path}\nstopped in time after step {result.steps}: the same command goes on from there")
    return result
