"""`cairn adapters`: what is published, and which version an alias points at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cairn.cli.arguments import StoragePath, storage_folder

if TYPE_CHECKING:
    from pathlib import Path

    from cairn.store.store import Adapter, Store

app = typer.Typer(help="Published adapters: list, show, promote.", no_args_is_help=True)


@app.command("list")
def list_adapters(storage: StoragePath = None) -> None:
    """List every adapter with its newest version and aliases."""
    from cairn.cli.terminal import say, show_table

    store = _store(storage)
    found = store.list()
    if not found:
        say(f"no adapters in {store.root}; publish one with: cairn train RECIPE storage.publish=NAME")
        return
    show_table(("adapter", "method", "stage", "aliases", "created"), [_row(store, adapter) for adapter in found])


@app.command("show")
def show(
    reference: Annotated[str, typer.Argument(metavar="REF", help="name, name@3 or name@alias.")],
    storage: StoragePath = None,
) -> None:
    """Show the card of one version as JSON, and where its files lie."""
    from cairn.cli.terminal import say

    adapter = _store(storage).resolve(reference)
    say(adapter.card.text().rstrip())
    say(f"files: {adapter.path}")


@app.command("promote")
def promote(
    reference: Annotated[str, typer.Argument(metavar="REF", help="name, name@3 or name@alias.")],
    alias: Annotated[str, typer.Argument(help="The alias to move, as in prod.")],
    storage: StoragePath = None,
) -> None:
    """Point an alias at a version, in one atomic write."""
    from cairn.cli.terminal import say

    store = _store(storage)
    card = store.resolve(reference).card
    store.promote(card.name, card.version, alias)
    say(f"{card.name}@{alias} is now {card.reference}")


def _store(storage: Path | None) -> Store:
    from cairn.store.store import Store

    return Store(storage_folder(storage) / "adapters")


def _row(store: Store, adapter: Adapter) -> tuple[str, str, str, str, str]:
    card = adapter.card
    aliases = ", ".join(f"{alias}→{version}" for alias, version in store.aliases(card.name).items())
    return adapter.reference, card.method, card.stage, aliases, card.created[:19]
