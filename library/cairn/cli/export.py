"""`cairn export`: a published adapter as something others open, reloaded and compared before it is called done."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cairn.cli.arguments import StoragePath, storage_folder

NAME = "export"


def command(
    reference: Annotated[str, typer.Argument(metavar="REF", help="name, name@3 or name@alias.")],
    to: Annotated[str, typer.Option(help="peft (a PEFT directory) or safetensors (a merged model).")],
    output: Annotated[Path, typer.Option(help="The folder to write; must not exist.")],
    storage: StoragePath = None,
) -> None:
    """Export an adapter with a reload check."""
    from cairn.cli.terminal import say
    from cairn.plugins import EXPORTS
    from cairn.store.store import Store

    export = EXPORTS.load(to)()
    adapter = Store(storage_folder(storage) / "adapters").resolve(reference)
    say(f"{adapter.reference} → {export.export(adapter, output.expanduser().resolve())}")
