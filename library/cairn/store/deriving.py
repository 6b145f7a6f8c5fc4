"""New versions computed from published ones: the same base, the same tokenizer, and a card that names the parents."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cairn.adapters.factors import Deviation
from cairn.adapters.files import CONFIG_FILE, TEMPLATE_FILE, WEIGHTS_FILE, LoraWeights, read_lora
from cairn.adapters.peft_config import says_lora
from cairn.adapters.plain import write_lora
from cairn.adapters.reading import read_other
from cairn.errors import AdapterError
from cairn.store.card import Facts
from cairn.store.fitting import last_names
from cairn.store.importing import TAKEN
from cairn.store.store import Adapter, Store

RELATIVE_ERROR = "relative_error"
"""The metric of a card that says how far it is from what was wanted."""


def read_parents(adapters: Sequence[Adapter]) -> list[LoraWeights]:
    """The LoRAs of published versions; AdapterError where they are no LoRAs, or not of one base and one tokenizer."""
    problems = list(_strangers(adapters))
    if problems:
        raise AdapterError(
            "the adapters do not belong together: " + "; ".join(problems), next_step="take adapters of one base model"
        )
    for adapter in adapters:
        _require_lora(adapter)
    return [read_lora(adapter.path, scores=None) for adapter in adapters]


def _require_lora(adapter: Adapter) -> None:
    """AdapterError for a sound adapter of another method, with what can be done with that."""
    if says_lora(adapter.path):
        return
    method = read_other(adapter.path).method
    raise AdapterError(
        f"{adapter.reference} is of the method '{method.name}', and only LoRAs can be added, compared or cut",
        where=str(adapter.path),
        next_step="it is no matrix either: serve it by its own name"
        if method.can.converts == "no"
        else f"make a LoRA of it, whose error is told: cairn adapters convert {adapter.reference} --publish NAME",
    )


def publish_derived(
    store: Store, name: str, weights: LoraWeights, parents: Sequence[Adapter], *, operation: str, error: Deviation
) -> Adapter:
    """Publish `weights`, made of `parents` by `operation`, with the tokenizer that they share."""
    first = parents[0]
    known = {
        "base": first.card.base.model_dump(mode="json"),
        "method": "lora",
        "stage": first.card.stage if len({parent.card.stage for parent in parents}) == 1 else "",
        "rank": weights.rank,
        "targets": last_names(weights.layers),
        "tokenizer_sha256": first.card.tokenizer_sha256,
        "metrics": {RELATIVE_ERROR: error.total},
        "parents": [parent.reference for parent in parents],
        "operation": operation,
    }
    with tempfile.TemporaryDirectory() as place:
        draft = write_lora(weights, Path(place) / "adapter", base=first.card.base.path)
        donor = next((parent for parent in parents if TEMPLATE_FILE in parent.card.files), first)
        for shared in TAKEN:
            if shared in donor.card.files and shared not in (CONFIG_FILE, WEIGHTS_FILE):
                shutil.copyfile(donor.path / shared, draft / shared)
        return store.publish(name, draft, Facts.parse(known))


def _strangers(adapters: Sequence[Adapter]) -> Iterator[str]:
    """What keeps adapters from being used as one; one without a chat template of its own goes along with any."""
    templates = {a.reference: a.card.files[TEMPLATE_FILE] for a in adapters if TEMPLATE_FILE in a.card.files}
    hashes: tuple[tuple[str, Mapping[str, str]], ...] = (
        ("base", {adapter.reference: adapter.card.base.sha256 for adapter in adapters}),
        ("tokenizer", {adapter.reference: adapter.card.tokenizer_sha256 for adapter in adapters}),
        ("chat template", templates),
    )
    for what, of in hashes:
        first = next(iter(of), "")
        for reference, sha256 in of.items():
            if sha256 != of[first]:
                yield f"{reference} has another {what} than {first}"
