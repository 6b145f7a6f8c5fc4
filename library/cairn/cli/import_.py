"""`cairn import`: another program's training configuration becomes a recipe, and every key of it is accounted for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cairn.config.dialects.translation import Translation

NAME = "import"


def command(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A LlamaFactory or Axolotl YAML or JSON.")],
    output: Annotated[Path | None, typer.Option(help="The recipe to write; standard output when not given.")] = None,
) -> None:
    """Turn a LlamaFactory or Axolotl configuration into a recipe, and name each key that has no equal and why."""
    from cairn.cli.terminal import errors, say, show_table
    from cairn.config.dialects.detect import import_file
    from cairn.config.dialects.writing import recipe_yaml
    from cairn.config.load import build
    from cairn.config.yaml import parse_yaml

    translation = import_file(config)
    text = recipe_yaml(translation.values, [*_head(translation, config, output)])
    if output is None:
        say(text.rstrip("\n"))
    else:
        output.write_text(text, encoding="utf-8")
    rows = [
        (row.status, row.key, _short(row.value), " → ".join(filter(None, (row.target, row.note))))
        for row in translation.rows
    ]
    show_table(("", f"{translation.dialect} key", "value", "becomes, or why not"), rows, on=errors)
    where = str(output or "the recipe")
    build(parse_yaml(text, where=where), where=where, problems=translation.problems)


def _head(translation: Translation, config: Path, output: Path | None) -> Iterator[str]:
    yield f"From {config.name} ({translation.dialect}) by cairn import. Run: cairn train {output or 'THIS_FILE'}"
    left = [row for row in translation.rows if row.status in ("no equal", "unknown", "wrong value")]
    if left:
        yield "Left out, because it has no equal here:"
    for row in left:
        yield f"  {row.key}: {_short(row.value)} ({row.note})"


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(text.split())
    return text if len(text) <= 40 else f"{text[:37]}..."
