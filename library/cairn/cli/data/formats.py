"""`cairn data formats`: which formats are known."""

from __future__ import annotations

from typing import Annotated

import typer

NAME = "formats"


def command(
    words: Annotated[list[str] | None, typer.Argument(metavar="[WORD]...", help="Only those that mention it.")] = None,
) -> None:
    """List the known formats: what a row looks like, what it becomes, and which datasets are of that shape."""
    from cairn.cli.terminal import show_table
    from cairn.data.format import Format, names

    known = [Format.load(name) for name in names()]
    rows = [(f.name, f.layout.record, f.layout.about, ", ".join(f.layout.also)) for f in known]
    wanted = [row for row in rows if all(word.lower() in " ".join(row).lower() for word in words or ())]
    show_table(("format", "record", "a row", "datasets"), wanted)
