"""`cairn adapters list`: every name that is published."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.cli.adapters.published import open_store
from cairn.cli.arguments import StoragePath

if TYPE_CHECKING:
    from cairn.store.store import Adapter, Store

NAME = "list"


def command(storage: StoragePath = None) -> None:
    """List every adapter with its newest version and aliases."""
    from cairn.cli.terminal import say, show_table

    store = open_store(storage)
    found = store.list()
    if not found:
        say(f"no adapters in {store.root}; publish one with: cairn train RECIPE storage.publish=NAME")
        return
    show_table(("adapter", "method", "stage", "aliases", "created"), [_row(store, adapter) for adapter in found])


def _row(store: Store, adapter: Adapter) -> tuple[str, str, str, str, str]:
    card = adapter.card
    aliases = ", ".join(f"{alias}→{version}" for alias, version in store.aliases(card.name).items())
    return adapter.reference, card.method, card.stage or card.operation, aliases, card.created[:19]
