"""`cairn evaluate`: bits per byte of a model, an adapter or a checkpoint over Pile-format files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cairn.cli.arguments import StoragePath, storage_folder

if TYPE_CHECKING:
    from cairn.cluster.evaluation import EvaluationJob
    from cairn.evaluation.report import Report

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
    quantization: Annotated[
        str, typer.Option(help="How the base is held: nf4, fp4, int8, none, or as-trained: as for the adapter.")
    ] = "as-trained",
    storage: StoragePath = None,
) -> None:
    """Measure bits per byte, per subset and in all, and write report.json and documents.jsonl."""
    from cairn.cli.terminal import output as terminal
    from cairn.cluster.evaluation import EvaluationJob
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
        quantization=quantization,
        storage=str(storage_folder(storage)),
    )
    job.check()
    with connected():
        report = evaluate_with_progress(job)
    terminal.print(report.table())
    terminal.print(f"report: {output / 'report.json'}", markup=False)


def evaluate_with_progress(job: EvaluationJob) -> Report:
    """The library's `evaluate` with a count of documents; the caller is connected to Ray."""
    from cairn.cli.terminal import progress
    from cairn.cluster.evaluation import evaluate

    with progress("documents scored") as update:
        return evaluate(job, on_progress=lambda documents, _tokens: update(documents, None))
