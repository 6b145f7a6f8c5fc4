"""`cairn adapters promote`: which version an alias points at."""

from __future__ import annotations

from typing import Annotated

import typer

from cairn.cli.adapters.published import Reference, open_store
from cairn.cli.arguments import StoragePath

NAME = "promote"


def command(
    reference: Reference,
    alias: Annotated[str, typer.Argument(help="The alias to move, as in prod.")],
    storage: StoragePath = None,
) -> None:
    """Point an alias at a version, in one atomic write."""
    from cairn.cli.terminal import say

    store = open_store(storage)
    card = store.resolve(reference).card
    store.promote(card.name, card.version, alias)
    say(f"{card.name}@{alias} is now {card.reference}")
