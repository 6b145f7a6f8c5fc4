"""`cairn adapters diff`: what two adapters change, and how alike."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cairn.cli.adapters.published import open_store
from cairn.cli.arguments import StoragePath

if TYPE_CHECKING:
    from cairn.adapters.difference import Difference, ModuleDifference

NAME = "diff"
COLUMNS = ("ranks", "‖ΔW‖", "‖ΔW'‖", "apart", "cosine", "out", "in", "angles")
EXPLAINED = (
    "apart: ‖ΔW − ΔW'‖ / ‖ΔW‖; out, in: overlap of the column and row spaces, 0 to 1; angles: between the column spaces, "
    "in degrees"
)


def command(
    one: Annotated[str, typer.Argument(metavar="REF", help="name, name@3 or name@alias.")],
    other: Annotated[str, typer.Argument(metavar="REF", help="The one to compare it with.")],
    output: Annotated[Path | None, typer.Option(help="An HTML file to plot it in.")] = None,
    plain: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    storage: StoragePath = None,
) -> None:
    """Compare two adapters module by module: norms, distance, cosine, and how far their subspaces overlap."""
    from cairn.adapters.difference import difference
    from cairn.cli.terminal import say, show_table
    from cairn.serving.dashboard.difference import write_page
    from cairn.store.deriving import read_parents

    store = open_store(storage)
    adapters = [store.resolve(reference) for reference in (one, other)]
    found = difference(*read_parents(adapters))
    names = (adapters[0].reference, adapters[1].reference)
    if plain:
        say(json.dumps({"adapters": names, **asdict(found)}, indent=1))
    else:
        shared = _shared_start([module.path for module in found.modules])
        show_table((f"{shared}…", *COLUMNS), [_row(module, shared) for module in found.modules])
        say(EXPLAINED)
        say(_in_all(found, names))
    if output is not None:
        path = write_page(found, names, output.expanduser().resolve())
        if not plain:
            say(f"plotted in {path}")


def _shared_start(paths: list[str]) -> str:
    """What all paths begin with, up to a dot: left out, so that the table is narrow."""
    columns = zip(*(path.split(".") for path in paths), strict=False)
    return "".join(f"{parts[0]}." for parts in itertools.takewhile(lambda parts: len(set(parts)) == 1, columns))


def _row(module: ModuleDifference, shared: str) -> tuple[str | None, ...]:
    angles = None
    if module.smallest_angle is not None:
        angles = f"{module.smallest_angle:.0f}-{module.largest_angle:.0f}"
    figures = (module.relative, module.cosine, module.overlap_out, module.overlap_in)
    return (
        module.path.removeprefix(shared) or module.path,
        f"{module.rank}, {module.other_rank}",
        f"{module.norm:.3g}",
        f"{module.other_norm:.3g}",
        *(None if figure is None else f"{figure:.3f}" for figure in figures),
        angles,
    )


def _in_all(found: Difference, names: tuple[str, str]) -> str:
    cosine, relative = ("none" if value is None else f"{value:.4f}" for value in (found.cosine, found.relative))
    return (
        f"in all: ‖ΔW‖ {found.norm:.4g} of {names[0]} and {found.other_norm:.4g} of {names[1]}, "
        f"apart by {relative} of the first, cosine {cosine}"
    )
