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
    show_mixture(recipe, prepared.manifest)
    return prepared


def show_counts(counts: Manifest) -> None:
    """What became of the records, in a line."""
    from cairn.cli.terminal import errors

    errors.print(f"{counts.documents} records, {counts.rows} rows, {counts.tokens} tokens, dropped: {counts.drops}")


def show_mixture(recipe: Recipe, counts: Manifest) -> None:
    """What an epoch holds of each subset, where they are mixed."""
    from cairn.cli.terminal import errors, show_table
    from cairn.data.feed import mixture_of
    from cairn.data.shares import absent, parts_of

    wanted = recipe.data.mixture
    if wanted is None:
        return
    rows = [
        (
            part.counts.name,
            f"{part.counts.documents:,}",
            f"{part.counts.source_bytes:,}",
            f"{part.counts.tokens:,}",
            f"{part.epochs:.3g}",
            f"{part.token_share:.2%}",
        )
        for part in parts_of(mixture_of(recipe.data, counts), counts.subsets)
    ]
    show_table(("subset", "documents", "bytes", "tokens", "epochs", "of all tokens"), rows, on=errors)
    missing = absent(wanted, counts.subsets)
    if missing:
        errors.print(f"weights renormalised: nothing here of {', '.join(missing)}", markup=False)
