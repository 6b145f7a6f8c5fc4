"""`cairn adapters combine`: one adapter of several, by weight."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cairn.cli.adapters.published import PublishName, open_store
from cairn.cli.arguments import StoragePath

if TYPE_CHECKING:
    from cairn.adapters.factors import Deviation

NAME = "combine"
SHOWN_MODULES = 5


def command(
    parts: Annotated[list[str], typer.Argument(metavar="REF:WEIGHT...", help="As in support@3:0.7 legal:0.3.")],
    publish: PublishName,
    how: Annotated[str, typer.Option(help="cat (exact), svd, linear, ties, dare or magnitude_prune.")] = "cat",
    rank: Annotated[int | None, typer.Option(help="The rank to cut to; the largest of theirs when not given.")] = None,
    density: Annotated[float, typer.Option(help="ties, dare, magnitude_prune: the share of numbers kept.")] = 0.5,
    seed: Annotated[int, typer.Option(help="dare: its chance.")] = 0,
    storage: StoragePath = None,
) -> None:
    """Publish the weighted sum of adapters, with its relative error against the exact sum."""
    from cairn.store.names import parse_mixture

    mixture = parse_mixture("+".join(parts))
    publish_combined(mixture, publish, storage, how=how, rank=rank, density=density, seed=seed)


def publish_combined(
    mixture: list[tuple[str, float]],
    name: str,
    storage: Path | None,
    *,
    how: str = "cat",
    rank: int | None = None,
    density: float = 0.5,
    seed: int = 0,
) -> None:
    """Combine, publish and tell."""
    from cairn.adapters.combine import combine
    from cairn.cli.terminal import say
    from cairn.store.deriving import publish_derived, read_parents

    store = open_store(storage)
    parents = [store.resolve(reference) for reference, _ in mixture]
    weights = [weight for _, weight in mixture]
    made = combine(read_parents(parents), weights, how=how, rank=rank, density=density, seed=seed)
    sparse = f" --density {density:g}" if how in ("ties", "dare", "magnitude_prune") else ""
    said = " ".join(f"{parent.reference}:{weight:g}" for parent, weight in zip(parents, weights, strict=True))
    operation = f"combine {said} --how {how}" + (f" --rank {rank}" if rank else "") + sparse
    operation += f" --seed {seed}" if how == "dare" else ""
    adapter = publish_derived(store, name, made.weights, parents, operation=operation, error=made.error)
    say(f"{adapter.reference}: {operation}")
    if how == "linear":
        say("linear adds the factors A and B separately, which is not the sum of the updates; cat is exact")
    show_error(made.error, rank=made.weights.rank)


def show_error(error: Deviation, *, rank: int) -> None:
    """The relative error, overall and of the modules where it is largest."""
    from cairn.cli.terminal import say, show_table

    say(f"rank {rank}, relative error {error.total:.2e}")
    worst = sorted(error.modules.items(), key=lambda item: -item[1])[:SHOWN_MODULES]
    if error.total > 1e-6:
        show_table(("largest errors", "relative error"), [(path, f"{value:.4f}") for path, value in worst])
