"""The command `cairn`: one verb a module, each importing what it needs only when it runs.

`cairn --help` imports neither torch nor Ray and answers in well under a second. Every failure leaves through `main`:
a message and exit code 2 (yours to mend) or 1 (ours), a traceback only with `--debug`.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

import typer

from cairn.cli import (
    compare,
    dashboard,
    doctor,
    estimate,
    evaluate,
    export,
    import_,
    prepare,
    quickstart,
    sample,
    search,
    serve,
    submit,
    train,
)
from cairn.cli.adapters import group as adapters
from cairn.cli.data import group as data
from cairn.cli.failures import explain
from cairn.cli.terminal import errors

INTERRUPTED = 130

app = typer.Typer(
    name="cairn",
    help="Fine-tune, serve and measure language models on a Ray cluster.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def options(
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of a failure; may stand anywhere."),
) -> None:
    """Fine-tune, serve and measure language models on a Ray cluster."""


for module in (
    quickstart,
    sample,
    import_,
    prepare,
    estimate,
    train,
    search,
    evaluate,
    compare,
    serve,
    dashboard,
    export,
    submit,
    doctor,
):
    app.command(module.NAME)(module.command)
app.add_typer(adapters.app, name="adapters")
app.add_typer(data.app, name="data")


def run(arguments: Sequence[str]) -> int:
    """Carry out one command line; returns the exit code."""
    debug = "--debug" in arguments
    if not errors.is_terminal:  # a bar in a log file is one endless line
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        os.environ.setdefault("TQDM_DISABLE", "1")
    logging.getLogger("DeepSpeed").addFilter(lambda record: "Setting accelerator to CPU" not in str(record.msg))
    try:
        result = app([item for item in arguments if item != "--debug"], standalone_mode=False, prog_name="cairn")
        return result if isinstance(result, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        errors.print("interrupted")
        return INTERRUPTED
    except typer.Exit as stop:
        return stop.exit_code
    except Exception as error:
        if _shown_by_typer(error):
            return 2
        if debug:
            errors.print_exception()
        failure = explain(error)
        errors.print("[bold red]error[/]", end=" ")
        errors.print(failure.message, markup=False)
        return failure.exit_code


def _shown_by_typer(error: Exception) -> bool:
    """A mistake in the command line knows how to show itself."""
    show = getattr(error, "show", None)
    if show is None:
        return False
    show()
    return True


def main() -> None:
    """The console script and `python -m cairn`."""
    sys.exit(run(sys.argv[1:]))
