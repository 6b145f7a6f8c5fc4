"""`cairn adapters add`: an adapter that was made elsewhere."""

from __future__ import annotations

from typing import Annotated

import typer

from cairn.cli.adapters.published import open_store
from cairn.cli.arguments import StoragePath

NAME = "add"


def command(
    source: Annotated[str, typer.Argument(metavar="FOLDER_OR_HUB", help="A PEFT directory, or USER/ADAPTER.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name to publish it under.")],
    base: Annotated[str | None, typer.Option(help="The base model; when not given, the one its config names.")] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub adapter.")] = None,
    storage: StoragePath = None,
) -> None:
    """Publish an adapter of any method from a PEFT directory or the hub, checked against its base model."""
    from cairn.cli.terminal import say
    from cairn.store.importing import import_adapter

    adapter = import_adapter(open_store(storage), source, name, base=base, revision=revision)
    card = adapter.card
    rank = f" of rank {card.rank}" if card.rank is not None else ""
    say(f"{adapter.reference}: {card.method}{rank} on {card.base.path}")
