"""`cairn adapters delete`: a version that nobody needs any more."""

from __future__ import annotations

from typing import Annotated

import typer

from cairn.cli.adapters.published import open_store
from cairn.cli.arguments import StoragePath

NAME = "delete"


def command(
    reference: Annotated[str, typer.Argument(metavar="NAME@VERSION", help="The version, by its number.")],
    storage: StoragePath = None,
) -> None:
    """Delete one version for good; refused while an alias points at it. Its number is never used again."""
    from cairn.cli.terminal import say

    say(f"deleted {open_store(storage).delete(reference).reference}")
