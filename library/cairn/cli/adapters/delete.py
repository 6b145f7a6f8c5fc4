"""`cairn adapters delete`: a version that nobody needs any more."""

from __future__ import annotations

from typing import Annotated

import typer

from cairn.cli.arguments import StoragePath, storage_folder

NAME = "delete"


def command(
    reference: Annotated[str, typer.Argument(metavar="NAME@VERSION", help="The version, by its number.")],
    storage: StoragePath = None,
) -> None:
    """Delete one version for good; refused while an alias points at it or a router chooses it. Its number is never used
    again."""
    from cairn.cli.terminal import say
    from cairn.store.routers import Routers

    say(f"deleted {Routers(storage_folder(storage)).delete_adapter(reference).reference}")
