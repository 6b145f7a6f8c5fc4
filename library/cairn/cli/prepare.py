"""`cairn prepare`: a recipe's files become token shards, once for one fingerprint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.cli.arguments import Overrides, RecipePath

if TYPE_CHECKING:
    from cairn.config.recipe import Recipe
    from cairn.data.manifest import Manifest
    from cairn.data.pipeline import Prepared

NAME = "prepare"


def command(recipe: RecipePath, overrides: Overrides = None) -> None:
    """Turn the recipe's files into token shards, those of every step where it is a pipeline."""
    from cairn.cli.terminal import say
    from cairn.cluster.session import connected
    from cairn.config.pipeline import load_steps

    steps = load_steps(recipe, overrides or ())
    with connected():
        for step in steps:
            say(f"token shards: {prepare_with_progress(step).train}")


def prepare_with_progress(recipe: Recipe) -> Prepared:
    """The library's `prepare` with a bar and a line of counts; the caller is connected to Ray."""
    from cairn.cli.terminal import progress
    from cairn.data.pipeline import prepare

    with progress("preparing") as update:
        prepared = prepare(recipe, on_progress=update)
    show_counts(prepared.manifest)
    return prepared


def show_counts(counts: Manifest) -> None:
    """What became of the records, in a line."""
    from cairn.cli.terminal import errors

    errors.print(f"{counts.documents} records, {counts.rows} rows, {counts.tokens} tokens, dropped: {counts.drops}")
