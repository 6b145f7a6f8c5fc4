"""`cairn adapters routers`: the routers that are published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cairn.cli.arguments import StoragePath, storage_folder

if TYPE_CHECKING:
    from cairn.store.store import Adapter, Store

NAME = "routers"


def command(
    reference: Annotated[str | None, typer.Argument(metavar="[REF]", help="name, name@3 or name@alias.")] = None,
    storage: StoragePath = None,
) -> None:
    """List every router with what it chooses among, or show the card of one."""
    from cairn.cli.terminal import say, show_table
    from cairn.store.routers import Routers

    store = Routers(storage_folder(storage))
    if reference is not None:
        router = store.resolve(reference)
        say(router.card.text().rstrip())
        say(f"files: {router.path}")
        return
    found = store.list()
    if not found:
        say(f"no routers in {store.root}; publish one with: {store.how_to_fill}")
        return
    show_table(("router", "adapters", "accuracy", "abstention", "aliases"), [_row(store, router) for router in found])


def _row(store: Store, router: Adapter) -> tuple[str | float | None, ...]:
    card = router.card
    aliases = ", ".join(f"{alias}→{version}" for alias, version in store.aliases(card.name).items())
    measured = (card.metrics.get("accuracy"), card.metrics.get("abstention"))
    return card.reference, ", ".join(card.parents), *measured, aliases
