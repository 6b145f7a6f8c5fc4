"""`cairn data`: the verbs on files of text and of tokens; a verb is a module with a NAME and a `command`."""

from __future__ import annotations

import typer

from cairn.cli.data import components, formats, inspect_, train_filter

app = typer.Typer(help="Data: what is in the files, and what can be made of them.", no_args_is_help=True)

for module in (inspect_, formats, components, train_filter):
    app.command(module.NAME)(module.command)
