"""`cairn export`: a published adapter as something others open, reloaded and compared before it is called done."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cairn.cli.arguments import StoragePath, storage_folder

if TYPE_CHECKING:
    from cairn.exports.base import Export

NAME = "export"


def command(
    reference: Annotated[str, typer.Argument(metavar="REF", help="name, name@3 or name@alias.")],
    to: Annotated[str, typer.Option(help="peft (a PEFT directory) or safetensors (a merged model).")],
    output: Annotated[Path, typer.Option(help="The folder to write; must not exist.")],
    precision: Annotated[str | None, typer.Option(help="fp32 or bf16, of a merged model.")] = None,
    text: Annotated[
        str | None, typer.Option(help="A Pile-format file to measure a merge into a quantised base on.")
    ] = None,
    storage: StoragePath = None,
) -> None:
    """Export an adapter with a reload check."""
    from cairn.cli.terminal import say
    from cairn.store.store import Store

    given = {"precision": precision, "text": text}
    export = _configured(to, {key: value for key, value in given.items() if value is not None})
    adapter = Store(storage_folder(storage) / "adapters").resolve(reference)
    target = export.export(adapter, output.expanduser().resolve())
    say("\n".join([f"{adapter.reference} → {target}", *export.remarks(target)]))


def _configured(to: str, values: dict[str, str]) -> Export:
    """The export called `to` with its Config of `values`; RecipeError for what it does not take."""
    from pydantic import ValidationError

    from cairn.config.explain import explain
    from cairn.errors import RecipeError
    from cairn.plugins import EXPORTS

    plugin = EXPORTS.load(to)
    try:
        export: Export = plugin(plugin.Config.parse(values))
    except ValidationError as error:
        raise RecipeError(list(explain(error, plugin.Config, prefix=to)), where=f"--to {to}") from None
    return export
