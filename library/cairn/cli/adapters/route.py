"""`cairn adapters route`: train, measure and publish what chooses the adapter for a request to `model="auto"`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cairn.cli.adapters.published import PublishName
from cairn.cli.arguments import StoragePath, storage_folder

if TYPE_CHECKING:
    from cairn.store.store import Adapter
    from cairn.training.router import TrainedRouter

NAME = "route"

Kind = Literal["centroid", "linear"]


def command(
    references: Annotated[list[str], typer.Argument(metavar="REF...", help="name, name@3 or name@alias; two or more.")],
    publish: PublishName,
    kind: Annotated[Kind, typer.Option(help="The nearest mean, or logistic regression.")] = "centroid",
    threshold: Annotated[
        float | None, typer.Option(help="Below it the base answers: a margin of cosines, or a probability.")
    ] = None,
    coverage: Annotated[
        float | None, typer.Option(help="Or the share of prompts above it, from which it is chosen; 0.9 by default.")
    ] = None,
    prompts: Annotated[int, typer.Option(min=10, help="Prompts of each adapter's training data at most.")] = 500,
    data: Annotated[
        list[str] | None, typer.Option("--data", metavar="NAME=FILE", help="Prompts of an adapter from elsewhere.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
    storage: StoragePath = None,
) -> None:
    """Train a router that chooses among adapters by the prompt, measure it on prompts kept back, and publish it."""
    import json

    from cairn.cli.terminal import output
    from cairn.errors import UserError
    from cairn.store.routers import Routers
    from cairn.training.router import COVERAGE, Settings, train_router

    if threshold is not None and coverage is not None:
        raise UserError("a threshold is given, and a coverage to choose one by", next_step="leave one of them out")
    folder = storage_folder(storage)
    Routers(folder).check_free(publish)
    settings = Settings(kind, threshold, COVERAGE if coverage is None else coverage, prompts, tuple(data or ()))
    trained = train_router(references, folder, settings)
    published = trained.publish(publish, folder)
    if as_json:
        answer = {"router": published.reference, "path": str(published.path), **trained.plain()}
        output.print(json.dumps(answer, ensure_ascii=False, indent=2), markup=False)
    else:
        _show(trained, published)


def _show(trained: TrainedRouter, published: Adapter) -> None:
    from cairn.cli.terminal import say, show_table

    found = trained.evaluation
    figures = ("accuracy", "abstention", "routed_accuracy")
    rows = [(name, one.prompts, *one.shares.values()) for name, one in zip(found.adapters, found.each, strict=True)]
    show_table(("adapter", "prompts", *figures), [*rows, ("all", found.all.prompts, *found.all.shares.values())])
    say("")
    show_table(
        ("prompts of ↓ went to →", *found.adapters, "the base"),
        [(name, *row) for name, row in zip(found.adapters, found.confusion, strict=True)],
    )
    for name, reasons in trained.left_out.items():
        for reason, count in reasons.items():
            say(f"{name}: {count} records gave no prompt ({reason})")
    say(
        f"{published.reference}: {trained.router.classifier.kind}, the base below {trained.router.threshold:.4g}; "
        f"serve it with: cairn serve --model {published.card.base.path} --router {published.card.name}"
    )
