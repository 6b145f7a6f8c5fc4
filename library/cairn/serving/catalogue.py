"""From the `model` of a request to weights: the base, a version or alias of the store, or an adapter loaded by name.

A reference is resolved anew for each request, so a promoted alias takes effect at once, and a request keeps the
version that it began with. The id under which weights become resident names their content, never just their name.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn.adapters.files import read_lora
from cairn.errors import AdapterError, did_you_mean
from cairn.serving.loaded import LoadedAdapter, LoadedAdapters, content_sha256
from cairn.serving.refusal import UnknownModelError
from cairn.store.card import Card
from cairn.store.store import Store

WEIGHTS_IN_MEMORY = 32
BASE_ALIAS = "base"


@dataclass(frozen=True)
class Served:
    """What a request runs with. `adapter_id` None is the base; `label` is what the answer calls it."""

    label: str
    adapter_id: str | None = None
    path: Path | None = None
    sha256: str | None = None


class Catalogue:
    """The names that a service answers to. `base_sha256` and `tokenizer_sha256` identify the base."""

    def __init__(
        self, *, base_name: str, base_path: str, storage: str, base_sha256: str, tokenizer_sha256: str
    ) -> None:
        self.base_name, self.base_path = base_name, base_path
        self.base_sha256, self.tokenizer_sha256 = base_sha256, tokenizer_sha256
        self.store = Store(Path(storage) / "adapters")
        self.loaded = LoadedAdapters(storage, base_name)
        self._weights: OrderedDict[tuple[str, bool], asyncio.Task[Any]] = OrderedDict()

    def resolve(self, model: str) -> Served:
        """What `model` names; UnknownModelError, or AdapterError for an adapter of another base."""
        if model in (self.base_name, BASE_ALIAS):
            return Served(self.base_name)
        try:
            loaded = self.loaded.get(model) if "@" not in model else None
            adapter = None if loaded else self.store.resolve(model)
        except AdapterError as error:
            raise UnknownModelError(
                f"the model '{model}' does not exist: {error.what}", next_step=self._advice(model)
            ) from None
        if loaded is not None:
            return Served(model, f"{model}#{loaded.sha256[:16]}", loaded.path, loaded.sha256)
        assert adapter is not None
        self.check_card(adapter.card)
        return Served(adapter.reference, adapter.reference, adapter.path)

    def check_card(self, card: Card) -> None:
        """AdapterError when the version was made for another base or tokenizer, or is no adapter at all."""
        if card.method == "full":
            raise AdapterError(
                f"{card.reference} is a whole model, not an adapter",
                where="model",
                next_step="serve its folder as model",
            )
        for what, theirs, ours in (
            ("base model", card.base.sha256, self.base_sha256),
            ("tokenizer", card.tokenizer_sha256, self.tokenizer_sha256),
        ):
            if theirs and theirs != ours:
                raise AdapterError(
                    f"{card.reference} was made for another {what} ({theirs[:12]}…, here {ours[:12]}…)",
                    where="model",
                    next_step=f"serve {card.base.path} for it",
                )

    async def weights(self, served: Served, *, scores: bool = False) -> Any:
        """The LoraWeights, read once however many ask; None for the base. A failed read is not remembered.

        AdapterError for an adapter that `scores` where one is wanted that speaks, and the other way round.
        """
        if served.adapter_id is None:
            return None
        key = (served.adapter_id, scores)
        task = self._weights.get(key)
        if task is None:
            task = asyncio.create_task(asyncio.to_thread(read_weights, served, scores=scores))
            self._weights[key] = task
            while len(self._weights) > WEIGHTS_IN_MEMORY:
                self._weights.popitem(last=False)
        self._weights.move_to_end(key)
        try:
            return await asyncio.shield(task)
        except Exception:
            self._weights.pop(key, None)
            raise

    def models(self) -> list[dict[str, Any]]:
        """Every name, as `GET /v1/models` lists it."""
        entries = [self.entry(self.base_name, root=self.base_path)]
        for name in self.store.names():
            versions = self.store.versions(name)
            pointers = [(name, versions[-1])] + [(adapter.reference, adapter) for adapter in versions]
            by_number = {adapter.card.version: adapter for adapter in versions}
            pointers += [
                (f"{name}@{alias}", by_number[v]) for alias, v in self.store.aliases(name).items() if v in by_number
            ]
            entries += [self.entry(label, root=str(adapter.path), parent=self.base_name) for label, adapter in pointers]
        for name in self.loaded.names():
            if adapter := self.loaded.get(name):
                entries.append(self.entry(name, root=str(adapter.path), parent=self.base_name))
        return entries

    def describe(self, name: str, folder: Path) -> LoadedAdapter:
        """A folder to be loaded under `name`; AdapterError when the name is taken or nothing is there."""
        if name in (self.base_name, BASE_ALIAS) or name in self.store.names() or self.loaded.get(name):
            raise AdapterError(
                f"'{name}' is taken", where="lora_name", next_step="choose another name, or unload it first"
            )
        return LoadedAdapter(name, folder, content_sha256(folder))

    def entry(self, label: str, *, root: str, parent: str | None = None) -> dict[str, Any]:
        """One of them."""
        return {"id": label, "object": "model", "created": 0, "owned_by": "cairn", "root": root, "parent": parent}

    def _advice(self, model: str) -> str:
        return did_you_mean(model, [entry["id"] for entry in self.models()])


def read_weights(served: Served, *, scores: bool = False) -> Any:
    """LoraWeights from the folder; AdapterError when they are bad or are not the content that was loaded."""
    assert served.path is not None
    weights = read_lora(served.path, scores=scores)
    if served.sha256 is not None and content_sha256(served.path) != served.sha256:
        raise AdapterError(
            f"the folder of '{served.label}' changed after it was loaded",
            where="model",
            next_step="unload and load it again",
        )
    return weights
