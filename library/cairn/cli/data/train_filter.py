"""`cairn data train-filter`: the classifier of the filter `quality`, from documents that are good and others that are not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

NAME = "train-filter"


def command(
    positive: Annotated[list[str], typer.Option(metavar="PATH", help="Documents to resemble; may be given again.")],
    negative: Annotated[list[str], typer.Option(metavar="PATH", help="Documents not to resemble; likewise.")],
    output: Annotated[Path, typer.Option(metavar="FILE", help="The model, a safetensors file.")],
    format: Annotated[str, typer.Option(help="A format's name or YAML; auto detects it.")] = "auto",
    limit: Annotated[int | None, typer.Option(min=1, help="Documents taken of each file.")] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the documents.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Seeds the order of the documents.")] = 0,
) -> None:
    """Train the quality classifier (the Pile-CC recipe) and say how well it tells held-out documents apart."""
    from cairn.cli.terminal import say
    from cairn.data.classifier import Training
    from cairn.data.train_filter import train_filter

    report = train_filter(
        positive, negative, output, format=format, limit=limit, training=Training(epochs=epochs, seed=seed)
    )
    for name, side in (("positive", report.positive), ("negative", report.negative)):
        say(
            f"{name}: {side.trained:,} documents learnt from, {side.short:,} too short; of {side.held_out:,} held out "
            f"{side.right:.1%} judged right, {side.kept:.1%} would be kept (α = 3)"
        )
    say(f"written to {output}; as a filter: {{name: quality, model: {output}}}")
