"""`cairn adapters merge`: one model of base and adapter, beside a base that stays as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cairn.cli import export
from cairn.cli.adapters.published import Reference
from cairn.cli.arguments import StoragePath

NAME = "merge"


def command(
    reference: Reference,
    output: Annotated[Path, typer.Option(help="The folder to write; must not exist.")],
    precision: Annotated[str | None, typer.Option(help="fp32 or bf16.")] = None,
    storage: StoragePath = None,
) -> None:
    """Write a merged model, as `cairn export --to safetensors`; the base and the adapter stay as they are."""
    export.command(reference, "safetensors", output, precision=precision, storage=storage)
