"""`cairn train`: prepare, train on the cluster's workers, publish when the recipe says so."""

from __future__ import annotations

from cairn.cli.arguments import Overrides, RecipePath

NAME = "train"


def command(recipe: RecipePath, overrides: Overrides = None) -> None:
    """Train by a recipe; the same recipe run again goes on where it stopped."""
    from cairn.cli.prepare import prepare_with_progress, show_counts
    from cairn.cli.terminal import say, show_table
    from cairn.cluster.session import connected
    from cairn.config.load import load

    parsed = load(recipe, overrides or ())
    with connected(parsed.training.workers * parsed.training.cpus_per_worker):
        from cairn.training.trainer import train

        result = train(parsed, prepared=None if parsed.data.streaming else prepare_with_progress(parsed))
    if parsed.data.streaming:
        from cairn.data.manifest import Manifest
        from cairn.data.pipeline import STREAM

        show_counts(Manifest.read(result.run_path / STREAM))
    show_table(("metric", "value"), sorted(result.metrics.items()))
    say(f"run: {result.run_path}\nadapter: {result.adapter_path}")
