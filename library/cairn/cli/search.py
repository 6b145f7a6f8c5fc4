"""`cairn search`: many short trainings over the keys of a recipe, ranked."""

from __future__ import annotations

from typing import Annotated

import typer

from cairn.cli.arguments import Overrides, RecipePath

NAME = "search"


def command(
    recipe: RecipePath,
    overrides: Overrides = None,
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="Go on with an interrupted search; fresh refuses an old name.")
    ] = True,
) -> None:
    """Search the recipe's `search.space`; a killed search goes on when run again."""
    from cairn.cli.terminal import say, show_table
    from cairn.cluster.session import connected
    from cairn.config.load import load

    parsed = load(recipe, overrides or ())
    trials = parsed.search.concurrent
    with connected(trials * parsed.training.most_workers * parsed.training.cpus_per_worker):
        from cairn.search.tune import search

        result = search(parsed, resume=resume)
    rows = [dict(row) for row in result.table]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    show_table(columns, [[row.get(key) for key in columns] for row in rows])
    say(f"search: {result.path}")
