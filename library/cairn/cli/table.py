"""The README's table of commands, written from the commands themselves: `python -m cairn.cli.table`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from cairn.cli.main import app
from cairn.config.table import rewrite

MARKER = "commands"


def command_table() -> str:
    """Markdown: every command with its arguments, in the order of the help."""
    rows = [f"| `{usage}` | {meaning} |" for usage, meaning in _commands(app, "cairn")]
    return "\n".join(["| command | what it does |", "|---|---|", *rows])


def _commands(group: typer.Typer, prefix: str) -> Iterator[tuple[str, str]]:
    built = typer.main.get_command(group)
    for name, command in built.commands.items():  # type: ignore[attr-defined]
        if hasattr(command, "commands"):
            continue
        arguments = " ".join(filter(None, map(_usage, command.params)))
        yield f"{prefix} {name} {arguments}".rstrip(), command.get_short_help_str(limit=200)
    for nested in group.registered_groups:
        assert nested.typer_instance is not None
        yield from _commands(nested.typer_instance, f"{prefix} {nested.name}")


def _usage(parameter: Any) -> str:
    """An argument, or an option that must be given; other options are in the command's own help."""
    text = (parameter.metavar or parameter.name.upper()).replace("|", "\\|")
    if parameter.param_type_name == "argument":
        return text if parameter.required or text.startswith("[") else f"[{text}]"
    return f"{parameter.opts[0]} {text}" if parameter.required else ""


def main(readme: Path = Path("README.md")) -> None:
    """Rewrite the table in place."""
    readme.write_text(rewrite(readme.read_text(encoding="utf-8"), MARKER, command_table()), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
