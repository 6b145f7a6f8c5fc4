"""`cairn adapters show`: what one version is, where it came from, and how strongly it changes what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.cli.adapters.published import Reference, open_store
from cairn.cli.arguments import StoragePath

if TYPE_CHECKING:
    from cairn.store.lineage import Ancestor
    from cairn.store.store import Adapter

NAME = "show"


def command(reference: Reference, storage: StoragePath = None) -> None:
    """Show the card of one version as JSON, where its files lie, its parents, and each module's rank and ‖ΔW‖."""
    from cairn.cli.terminal import say
    from cairn.store.lineage import lineage

    store = open_store(storage)
    adapter = store.resolve(reference)
    say(adapter.card.text().rstrip())
    say(f"files: {adapter.path}")
    for ancestor in lineage(store, adapter.card):
        say(_came_from(ancestor))
    _show_modules(adapter)


def _came_from(ancestor: Ancestor) -> str:
    indent = "  " * (ancestor.depth - 1)
    if ancestor.card is None:
        return f"{indent}from {ancestor.named} ({ancestor.reason})"
    how = ancestor.card.operation or ancestor.card.stage or ancestor.card.method
    return f"{indent}from {ancestor.card.reference} ({how}, {ancestor.card.created[:19]})"


def _show_modules(adapter: Adapter) -> None:
    from cairn.adapters.factors import updates_of
    from cairn.adapters.files import read_lora
    from cairn.cli.terminal import say, show_table
    from cairn.errors import AdapterError

    if adapter.card.method != "lora":
        return
    try:
        weights = read_lora(adapter.path, scores=None)
    except AdapterError as error:
        say(f"modules: {error.what}")
        return
    rows = [
        (path, update.rank, f"{weights.scaling[path]:g}", f"{update.norm():.4g}")
        for path, update in updates_of(weights).items()
    ]
    show_table(("module", "rank", "scaling", "‖ΔW‖"), rows)
