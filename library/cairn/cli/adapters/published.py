"""What the verbs share: references as arguments, the store behind them, and where a result goes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cairn.cli.arguments import storage_folder

if TYPE_CHECKING:
    from cairn.store.store import Store

Reference = Annotated[str, typer.Argument(metavar="REF", help="name, name@3 or name@alias.")]
PublishName = Annotated[str, typer.Option("--publish", metavar="NAME", help="The name to publish the result under.")]


def open_store(storage: Path | None) -> Store:
    """The adapters of a storage folder."""
    from cairn.store.store import Store

    return Store(storage_folder(storage) / "adapters")
