"""`cairn compare`: finished runs side by side by one yardstick, as tables, a JSON file and a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cairn.cli.arguments import StoragePath, storage_folder

if TYPE_CHECKING:
    from cairn.comparison.compare import Comparison, Entry

NAME = "compare"
PAIRS = ("accuracy", "accuracy_summed", "accuracy_reward", "margin")
ANSWERS = ("kl_per_token", "kl_per_answer", "answer_tokens", "ended")
COSTS = ("steps", "tokens", "seconds", "peak_memory_bytes")


def command(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Names of finished runs, or their folders.")],
    pairs: Annotated[
        list[str] | None,
        typer.Option(help="A file of comparisons that no run was trained on; by default what the runs evaluated."),
    ] = None,
    files: Annotated[list[str] | None, typer.Option(help="A file of documents for bits per byte.")] = None,
    by: Annotated[str, typer.Option(help="The figure that ranks the runs.")] = "accuracy",
    limit: Annotated[int, typer.Option(min=1, help="At most so many pairs, and documents of each file.")] = 256,
    answers: Annotated[int, typer.Option(min=1, help="Prompts that every model answers.")] = 32,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens of such an answer at most.")] = 128,
    precision: Annotated[str, typer.Option(help="fp32 or bf16.")] = "fp32",
    output: Annotated[Path, typer.Option(help="Folder for comparison.json and comparison.html.")] = Path("comparison"),
    storage: StoragePath = None,
) -> None:
    """Rank runs of one base model on held-out pairs, KL to the base, answer length, bits per byte and cost."""
    from cairn.cli.terminal import progress, say, show_table
    from cairn.comparison.compare import compare
    from cairn.comparison.runs import find_runs
    from cairn.comparison.yardstick import Settings
    from cairn.evaluation.report import check_output
    from cairn.serving.dashboard.comparison import write_page

    folder = check_output(output.expanduser())
    found = find_runs(runs, storage=storage_folder(storage))
    settings = Settings(tuple(pairs or ()), tuple(files or ()), limit, answers, max_tokens, precision)
    with progress("models measured") as update:
        comparison = compare(found, settings, by=by, on_progress=update)
    for title, columns, rows in tables(comparison):
        show_table(columns, rows, title=title)
        say("")
    for reason, count in comparison.yardstick["left_out"].items():
        say(f"left out of the pairs: {count}, {reason}")
    say(f"figures: {comparison.write(folder)}\npage: {write_page(comparison.plain(), folder)}")


def tables(comparison: Comparison) -> Iterator[tuple[str, list[str], list[list[object]]]]:
    """(title, columns, rows) of what the runs are worth, how they answer, of bits per byte by subset, and of cost."""
    entries = (*comparison.runs, comparison.base)
    columns, rows = _columns(entries, PAIRS)
    rows = [[*row, _range(entry)] for row, entry in zip(rows, entries, strict=True)]
    yield f"{comparison.yardstick['pairs']} held-out pairs, ranked by {comparison.by}", [*columns, "95 %"], rows
    speaking = [entry for entry in entries if entry.figures["answer_tokens"] is not None]
    yield f"answers to {comparison.yardstick['prompts']} prompts", *_columns(speaking, ANSWERS)
    if subsets := list(comparison.base.bits_per_byte):
        rows = [[entry.name, *map(entry.bits_per_byte.get, subsets), entry.figures["bpb"]] for entry in speaking]
        yield "bits per byte", ["run", *subsets, "all"], rows
    yield "cost", *_columns(comparison.runs, COSTS)


def _columns(entries: Sequence[Entry], names: Sequence[str]) -> tuple[list[str], list[list[object]]]:
    from cairn.comparison.figures import FIGURES

    rows: list[list[object]] = [
        [entry.name, entry.stage or "base", *(_written(entry.figures[name], name) for name in names)]
        for entry in entries
    ]
    return ["run", "stage", *(FIGURES[name].label for name in names)], rows


def _written(value: float | None, name: str) -> str | None:
    if value is None:
        return None
    if name == "peak_memory_bytes":
        return f"{value / 2**30:.2f} GiB"
    return f"{value:,.0f}" if name in COSTS else f"{value:.3f}"


def _range(entry: Entry) -> str:
    low, high = entry.interval
    return f"{low:.2f}–{high:.2f}"
