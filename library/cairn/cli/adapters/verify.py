"""`cairn adapters verify`: whether a version still is what its card says."""

from __future__ import annotations

import typer

from cairn.cli.adapters.published import Reference, open_store
from cairn.cli.arguments import StoragePath

NAME = "verify"
WORDS = {True: "ok", False: "FAILED", None: "not asked"}


def command(reference: Reference, storage: StoragePath = None) -> None:
    """Check files, hashes, config, numbers, base, shapes and tokenizer of a version; exit code 1 when one fails."""
    from cairn.cli.terminal import show_table
    from cairn.store.verify import verify

    checks = verify(open_store(storage).resolve(reference))
    show_table(("check", "result", "what was found"), [(c.name, WORDS[c.ok], c.reason) for c in checks])
    if any(check.ok is False for check in checks):
        raise typer.Exit(1)
