"""`cairn adapters`: the verbs on what is published; a verb is a module with a NAME and a `command`."""

from __future__ import annotations

import typer

from cairn.cli.adapters import (
    add,
    combine,
    convert,
    delete,
    diff,
    list_,
    merge,
    methods,
    promote,
    prune,
    route,
    routers,
    show,
    stack,
    verify,
)

app = typer.Typer(
    help="Published adapters: what there is, what is in them, and what can be made of them.", no_args_is_help=True
)

for module in (
    list_,
    show,
    verify,
    diff,
    add,
    promote,
    delete,
    combine,
    stack,
    prune,
    convert,
    merge,
    route,
    routers,
    methods,
):
    app.command(module.NAME)(module.command)
