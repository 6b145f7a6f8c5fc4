"""`cairn adapters stack`: several adapters at once, as one."""

from __future__ import annotations

from typing import Annotated

import typer

from cairn.cli.adapters.published import PublishName
from cairn.cli.arguments import StoragePath

NAME = "stack"


def command(
    parts: Annotated[list[str], typer.Argument(metavar="REF...", help="name, name@3 or name@alias, each.")],
    publish: PublishName,
    storage: StoragePath = None,
) -> None:
    """Publish adapters stacked: what all of them active together do, exactly (combine with weight 1 each)."""
    from cairn.cli.adapters.combine import publish_combined

    publish_combined([(reference, 1.0) for reference in parts], publish, storage)
