"""A run's progress on the terminal of whoever started it, read from `state.json`.

Training happens in other processes, perhaps on other hosts; the shared run folder is the one thing they have in
common. With a terminal it is a bar, in a log file a line each tenth of the way.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from cairn.training.state import RUNNING, read_state

POLL_S = 0.5


@contextmanager
def watched(run_path: Path, label: str, *, console: Console | None = None) -> Iterator[None]:
    """Show the run in `run_path` while the block runs; on standard error unless a `console` is given."""
    console = console or Console(stderr=True, highlight=False)
    ended = threading.Event()
    show = _bar if console.is_terminal else _lines
    watcher = threading.Thread(target=show, args=(run_path, label, console, ended), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def figures(state: dict[str, Any]) -> str:
    """`loss 2.134 · 1,204 tok/s · held-out 1.021 bits/byte`, as far as they are known."""
    metrics = state.get("metrics", {})
    shown = (
        ("loss", "loss {:.3f}"),
        ("tokens_per_second", "{:,.0f} tok/s"),
        ("held_out_bpb", "held-out {:.3f} bits/byte"),
    )
    known = [text.format(metrics[name]) for name, text in shown if metrics.get(name) is not None]
    return " · ".join(known) if state.get("status") == RUNNING and known else state.get("status", "waiting")


def _bar(run_path: Path, label: str, console: Console, ended: threading.Event) -> None:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
    )
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task(label, total=None, figures="starting workers")
        while not ended.wait(POLL_S):
            _advance(progress, task, run_path)
        _advance(progress, task, run_path)


def _advance(progress: Progress, task: TaskID, run_path: Path) -> None:
    state = read_state(run_path)
    progress.update(task, completed=state.get("step", 0), total=state.get("steps"), figures=figures(state))


def _lines(run_path: Path, label: str, console: Console, ended: threading.Event) -> None:
    tenth = -1
    over = False
    while not over:
        over = ended.wait(POLL_S)
        state = read_state(run_path)
        done, steps = state.get("step", 0), state.get("steps")
        if steps and 10 * done // steps > tenth:
            tenth = 10 * done // steps
            console.print(f"{label}: {done} of {steps} · {figures(state)}", markup=False)
