"""`cairn adapters prune`: the same adapter of a smaller rank."""

from __future__ import annotations

from typing import Annotated

import typer

from cairn.cli.adapters.published import PublishName, Reference, open_store
from cairn.cli.arguments import StoragePath

NAME = "prune"


def command(
    reference: Reference,
    publish: PublishName,
    rank: Annotated[int | None, typer.Option(help="The largest rank of a module.")] = None,
    energy: Annotated[float | None, typer.Option(help="Or the share of Σσ² that each module keeps.")] = None,
    storage: StoragePath = None,
) -> None:
    """Publish an adapter cut by SVD to a rank, or to a share of its energy, with its relative error."""
    from cairn.adapters.compress import prune
    from cairn.cli.adapters.combine import show_error
    from cairn.cli.terminal import say
    from cairn.store.deriving import publish_derived, read_parents

    store = open_store(storage)
    parent = store.resolve(reference)
    (weights,) = read_parents([parent])
    pruned = prune(weights, rank=rank, energy=energy)
    operation = f"prune {parent.reference} " + (f"--rank {rank}" if rank else f"--energy {energy:g}")
    adapter = publish_derived(store, publish, pruned.weights, [parent], operation=operation, error=pruned.error)
    say(f"{adapter.reference}: {operation}, rank {weights.rank} before")
    show_error(pruned.error, rank=pruned.weights.rank)
