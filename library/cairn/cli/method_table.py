"""The generated part of docs/methods.md: what every adapter method does, what it can, and its keys.

`python -m cairn.cli.method_table` rewrites what stands between the markers; a test fails when the page is behind. A new
method documents itself by existing: its module's docstring, its capabilities, its Config, its proof.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cairn.adapters.method import Capabilities
from cairn.adapters.proven import proven
from cairn.config.table import key_rows, rewrite
from cairn.plugins import METHODS

MARKER = "methods"


def method_sections() -> str:
    """Markdown: a section a method, in the order of their names; those that are refused at the end, with the reason."""
    known = {name: METHODS.load(name) for name in METHODS.names()}
    offered = ["\n".join(_section(name, method)) for name, method in known.items() if not method.refused]
    refused = [f"| `{name}` | {method.refused} |" for name, method in known.items() if method.refused]
    return "\n\n".join([*offered, "\n".join(["## Refused", "", "| method | why |", "|---|---|", *refused])])


def _section(name: str, method: Any) -> Iterator[str]:
    yield f"## {name}"
    yield ""
    yield " ".join((inspect.getmodule(method).__doc__ or "").split())
    yield ""
    yield f"{_abilities(method.can)} {_proof(name)}"
    if method.Config.model_fields:
        yield ""
        yield key_rows("adapter", method.Config)


def _abilities(can: Capabilities) -> str:
    some = [
        *(["on quantised bases too"] if can.quantised else []),
        "merges" if can.merges else "cannot be merged",
        {"no": "is no LoRA", "approximate": "becomes a LoRA nearly", "exact": "becomes a LoRA exactly"}[can.converts],
        *(["without gradient checkpointing"] if not can.checkpointing else []),
        *([f"up to ZeRO {can.zero_stage}"] if can.zero_stage < 3 else []),
    ]
    return f"Stands on {', '.join(can.layers)}; {', '.join(some)}."


def _proof(name: str) -> str:
    found = proven()["methods"].get(name, {})
    fit = {architecture: verdicts for architecture, verdicts in found.items() if "unfit" not in verdicts}
    served = all(verdicts.get("serves") for verdicts in fit.values())
    return f"Proven on {', '.join(fit)}{', also beside others in one batch' * served}." if found else ""


def main(page: Path = Path("docs/methods.md")) -> None:
    """Rewrite the sections in place."""
    page.write_text(rewrite(page.read_text(encoding="utf-8"), MARKER, method_sections()), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
