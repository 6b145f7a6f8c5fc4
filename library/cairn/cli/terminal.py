"""Where the commands write: results on standard output, progress and errors on standard error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table

output = Console(highlight=False, soft_wrap=True)
errors = Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """One line of a result, taken literally (no markup)."""
    output.print(text, markup=False)


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None, on: Console = output
) -> None:
    """A table of values as text."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")  # in a narrow place nothing is left out
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    on.print(table)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return "" if value is None else str(value).replace("[", "\\[")


@contextmanager
def progress(label: str) -> Iterator[Any]:
    """A bar on standard error; yields `update(done, total)`, total None while it is unknown.

    Without a terminal it prints a line each tenth, or at each doubling of an unknown total.
    """
    if errors.is_terminal:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=errors) as bar:
            task = bar.add_task(label, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        yield _Lines(label).update


class _Lines:
    """Progress for a log file: a few lines."""

    def __init__(self, label: str) -> None:
        self.label, self.mark = label, -1

    def update(self, done: int, total: int | None) -> None:
        mark = done.bit_length() if total is None else 10 * done // max(total, 1)
        if mark > self.mark:
            self.mark = mark
            errors.print(f"{self.label}: {done}" + ("" if total is None else f" of {total}"), markup=False)
