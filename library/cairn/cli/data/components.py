"""`cairn data components`: the Pile's 22 components, or those that a selection means."""

from __future__ import annotations

from typing import Annotated

import typer

NAME = "components"


def command(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[WORD]...", help="Only those of a selection, as data.subsets: a kind, pile-uncopyrighted …"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON, with every alias.")] = False,
) -> None:
    """List the Pile's components: size, epochs, weight, kind and licence marks."""
    import json
    from dataclasses import asdict

    from cairn.cli.terminal import output, say, show_table
    from cairn.data.components import components
    from cairn.data.selection import SELECTIONS, Selection
    from cairn.records import Source

    selection, nowhere = Selection.of(words or ()), Source("", 0)
    chosen = [component for component in components() if (component.tag, nowhere) in selection]
    if as_json:
        output.print(json.dumps([asdict(component) for component in chosen], indent=2), markup=False)
        return
    show_table(
        ("component", "kind", "GiB", "M docs", "epochs", "%", "marks", "free"),
        [
            (
                c.tag,
                c.kind,
                f"{c.raw_bytes / 2**30:.2f}",
                f"{c.raw_documents / 1e6:.3f}",
                f"{c.epochs:g}",
                f"{c.weight_percent:.2f}",
                f"{c.consent_marks}",
                "yes" if c.uncopyrighted else "no",
            )
            for c in chosen
        ],
    )
    size, weight = sum(c.raw_bytes for c in chosen), sum(c.weight_percent for c in chosen)
    say(f"{len(chosen)} components, {size / 2**30:,.2f} GiB, {weight:.2f} % of the Pile by weight")
    say("%: Table 1's weight; marks: how many of three kinds of consent (Table 5); free: in pile-uncopyrighted")
    say(f"data.subsets takes tags, aliases, or: {', '.join(SELECTIONS)}; a - before a word leaves it out")
