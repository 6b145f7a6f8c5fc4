"""`cairn adapters methods`: every adapter method with what is proven of it, and the proof itself."""

from __future__ import annotations

from typing import Annotated, Any

import typer

NAME = "methods"
CLAIMS = ("starts", "trains", "resumes", "reloads", "merges", "unmerges", "converts", "serves", "quantised")
SIGNS = {True: "yes", False: "NO", None: "-"}


def command(
    as_json: Annotated[bool, typer.Option("--json", help="The table as JSON.")] = False,
    prove: Annotated[
        str | None, typer.Option(metavar="NAME", help="Run the proof of one method again, on every architecture.")
    ] = None,
) -> None:
    """List the adapter methods: what each can, proven on five architectures with the pinned versions."""
    import json

    from cairn.adapters.proven import proven
    from cairn.cli.terminal import say, show_table

    if prove is not None:
        _prove(prove)
        return
    kept = proven()
    rows = [_entry(name, by_architecture) for name, by_architecture in kept["methods"].items()]
    if as_json:
        say(json.dumps(rows, indent=1))
        return
    show_table(
        ("method", *CLAIMS, "remarks"),
        [(row["name"], *(SIGNS[row["claims"].get(claim)] for claim in CLAIMS), row["reason"]) for row in rows],
    )
    say("proven with " + ", ".join(f"{library} {version}" for library, version in kept["versions"].items()))


def _entry(name: str, by_architecture: dict[str, Any]) -> dict[str, Any]:
    """One object of the JSON: a claim holds where it holds on every architecture that the method fits, and is no claim
    (None) where it is none on one of them."""
    from dataclasses import asdict

    from cairn.plugins import METHODS

    suited = {architecture: found for architecture, found in by_architecture.items() if "unfit" not in found}
    refused = next((found["refused"] for found in suited.values() if "refused" in found), "")
    claims = {} if refused else {claim: _together([found.get(claim) for found in suited.values()]) for claim in CLAIMS}
    unfit = [f"not on {architecture}" for architecture in by_architecture if architecture not in suited]
    return {
        "name": name,
        "proven": not refused and bool(suited) and False not in claims.values(),
        "reason": refused or ", ".join(unfit),
        "capabilities": asdict(METHODS.load(name).can),
        "claims": claims,
        "architectures": sorted(suited),
    }


def _together(holds: list[bool | None]) -> bool | None:
    return False if False in holds else None if None in holds else True


def _prove(name: str) -> None:
    from cairn.adapters.proof import Claim, prove
    from cairn.adapters.specimens import ARCHITECTURES
    from cairn.cli.terminal import show_table
    from cairn.plugins import METHODS

    METHODS.load(name)
    rows = []
    for architecture in ARCHITECTURES:
        found = prove(name, architecture)
        cells = [found.get(claim) for claim in CLAIMS]
        rows.append(
            (
                architecture,
                *(_shown(cell) if isinstance(cell, Claim) else "" for cell in cells),
                found.get("unfit", found.get("refused", "")),
            )
        )
    show_table(("architecture", *CLAIMS, "remarks"), rows)


def _shown(claim: Any) -> str:
    figure = "" if claim.figure is None else f" ({claim.figure:.0e})"
    return SIGNS[claim.holds] + figure
