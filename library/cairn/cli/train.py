"""`cairn train`: prepare, train on the cluster's workers, publish when the recipe says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.cli.arguments import Overrides, RecipePath

if TYPE_CHECKING:
    from cairn.config.recipe import Recipe
    from cairn.training.folder import TrainingResult

NAME = "train"


def command(recipe: RecipePath, overrides: Overrides = None) -> None:
    """Train by a recipe, or by each step of its pipeline; the same recipe run again goes on where it stopped."""
    from cairn.cluster.session import connected
    from cairn.config.pipeline import load_steps
    from cairn.training.pipeline import carry_out

    steps = load_steps(recipe, overrides or ())
    with connected(max(step.training.workers * step.training.cpus_per_worker for step in steps)):
        carry_out(steps, train_and_tell)


def train_and_tell(recipe: Recipe) -> TrainingResult:
    """Prepare and train; the caller is connected to Ray. Says what it found and where it lies."""
    from cairn.cli.prepare import prepare_with_progress, show_counts
    from cairn.cli.terminal import errors, say, show_table
    from cairn.training.start import pinned
    from cairn.training.trainer import train

    recipe = pinned(recipe)
    if recipe.model.adapter is not None:
        errors.print(f"{recipe.stage.name} goes on from {recipe.model.adapter}")
    result = train(recipe, prepared=None if recipe.data.streaming else prepare_with_progress(recipe))
    if recipe.data.streaming:
        from cairn.data.manifest import Manifest
        from cairn.data.pipeline import STREAM

        show_counts(Manifest.read(result.run_path / STREAM))
    show_table(("metric", "value"), sorted(result.metrics.items()))
    say(f"run: {result.run_path}\nadapter: {result.adapter_path}")
    return result
