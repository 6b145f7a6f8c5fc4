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
    """Show the card of one version as JSON, where its files lie, its parents, and each module's rank and ‖ΔW‖; of virtual
    tokens the nearest words."""
    from cairn.cli.terminal import say
    from cairn.store.lineage import lineage

    store = open_store(storage)
    adapter = store.resolve(reference)
    say(adapter.card.text().rstrip())
    say(f"files: {adapter.path}")
    for ancestor in lineage(store, adapter.card):
        say(_came_from(ancestor))
    _show_modules(adapter)
    _show_virtual_tokens(adapter)


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


def _show_virtual_tokens(adapter: Adapter) -> None:
    """The tokens of the base's vocabulary that lie nearest to each, by cosine."""
    from cairn.adapters.methods._soft_prompt import SoftPromptMethod
    from cairn.adapters.reading import read_other, soft_prompt
    from cairn.adapters.soft_prompts import nearest_tokens
    from cairn.cli.terminal import say, show_table
    from cairn.errors import CairnError
    from cairn.models.load import load_tokenizer
    from cairn.plugins import METHODS
    from cairn.store.opening import load_base

    if adapter.card.method not in METHODS.names() or not issubclass(
        METHODS.load(adapter.card.method), SoftPromptMethod
    ):
        return
    try:
        prompt = soft_prompt(read_other(adapter.path))
        tokenizer = load_tokenizer(adapter.card.base.path)
        embeddings = load_base(adapter).get_input_embeddings().weight
        found = list(nearest_tokens(prompt, embeddings))
    except CairnError as error:
        say(f"virtual tokens: {error}")
        return
    rows = [(number, *(f"{tokenizer.decode([t])!r} {c:.3f}" for t, c in near)) for number, near in enumerate(found)]
    show_table(("virtual token", "nearest", "second", "third"), rows)
