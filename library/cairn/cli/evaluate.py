"""`cairn evaluate`: bits per byte of a model, an adapter or a checkpoint over Pile-format files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cairn.cli.arguments import StoragePath, storage_folder

NAME = "evaluate"


def command(
    model: Annotated[str, typer.Option(help="A model directory, a hub name, or a GGUF file.")],
    data: Annotated[list[str], typer.Option("--data", help="Pile-format files or globs; several may follow.")],
    more_data: Annotated[list[str] | None, typer.Argument(metavar="[FILE]...", help="More files.")] = None,
    adapter: Annotated[str | None, typer.Option(help="name, name@3, name@alias, or a folder.")] = None,
    window: Annotated[int, typer.Option(min=2, help="Tokens of a scoring window.")] = 1024,
    precision: Annotated[str, typer.Option(help="fp32 or bf16.")] = "fp32",
    limit: Annotated[int | None, typer.Option(min=1, help="Score only the first N documents of each file.")] = None,
    output: Annotated[Path, typer.Option(help="Folder for report.json and documents.jsonl.")] = Path("evaluation"),
    by_position: Annotated[bool, typer.Option("--by-position", help="Also by position in the document.")] = False,
    storage: StoragePath = None,
) -> None:
    """Measure bits per byte, per subset and in all, and write report.json and documents.jsonl."""
    from cairn.cli.terminal import output as terminal
    from cairn.cluster.evaluation import EvaluationJob, evaluate
    from cairn.cluster.session import connected

    job = EvaluationJob(
        model=model,
        adapter=adapter,
        data=(*data, *(more_data or ())),
        window=window,
        precision=precision,
        limit=limit,
        output=str(output),
        by_position=by_position,
        storage=str(storage_folder(storage)),
    )
    with connected():
        report = evaluate(job)
    terminal.print(report.table())
    terminal.print(f"report: {output / 'report.json'}", markup=False)
