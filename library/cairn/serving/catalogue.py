"""From the `model` of a request to weights: the base, a version or alias of the store, an adapter loaded by name, or a
weighted sum of such (`support:0.7+legal@3:0.3`), which is made exactly and takes a slot of its own. An adapter of a
method beside LoRA becomes what it does to each layer (`cairn.adapters.beside`).

A reference is resolved anew for each request, so a promoted alias takes effect at once, and a request keeps the
version that it began with. The id under which weights become resident names their content, never just their name.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn.adapters.beside import ADVICE, read_beside
from cairn.adapters.combine import combine
from cairn.adapters.files import chat_template_of
from cairn.adapters.linear_change import AdapterChanges
from cairn.errors import AdapterError, did_you_mean
from cairn.models.twin import twin
from cairn.serving.loaded import LoadedAdapter, LoadedAdapters, content_sha256
from cairn.serving.refusal import UnknownModelError
from cairn.store.card import Card
from cairn.store.names import parse_mixture
from cairn.store.store import Store

WEIGHTS_IN_MEMORY = 32
BASE_ALIAS = "base"


@dataclass(frozen=True)
class Served:
    """What a request runs with. `adapter_id` None is the base; `label` is what the answer calls it.

    Of a mixture `parts` are its adapters with their weights; `path` is where the chat template lies of those that bring one.
    """

    label: str
    adapter_id: str | None = None
    path: Path | None = None
    sha256: str | None = None
    parts: tuple[tuple[Served, float], ...] = ()


class Catalogue:
    """The names that a service answers to. `base_sha256` and `tokenizer_sha256` identify the base; `model` is it, as it
    was loaded: its numbers are looked at, its layers may be replaced afterwards."""

    def __init__(
        self, model: Any, *, base_name: str, base_path: str, storage: str, base_sha256: str, tokenizer_sha256: str
    ) -> None:
        self.model = twin(model)
        self.base_name, self.base_path = base_name, base_path
        self.base_sha256, self.tokenizer_sha256 = base_sha256, tokenizer_sha256
        self.store = Store(Path(storage) / "adapters")
        self.loaded = LoadedAdapters(storage, base_name)
        self._weights: OrderedDict[tuple[str, bool], asyncio.Task[Any]] = OrderedDict()

    def resolve(self, model: str) -> Served:
        """What `model` names; UnknownModelError, or AdapterError for an adapter of another base."""
        if model in (self.base_name, BASE_ALIAS):
            return Served(self.base_name)
        if ":" in model or "+" in model:
            return self._mixture(model)
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

    def _mixture(self, model: str) -> Served:
        """The id names resolved versions and weights, so that an alias that moves never mixes old and new."""
        try:
            asked = parse_mixture(model)
        except AdapterError as error:
            raise AdapterError(error.what, where="model", next_step=error.next_step) from None
        parts = tuple((self.resolve(reference), weight) for reference, weight in asked)
        ids = [part.adapter_id for part, _ in parts]
        if None in ids or len(set(ids)) < len(ids):
            raise AdapterError(
                "the base is in a mixture already, with weight 1"
                if None in ids
                else f"'{model}' names an adapter twice",
                where="model",
                next_step="name each adapter once, as in support:0.7+legal:0.3",
            )
        templates = {text: part.path for part, _ in parts if part.path and (text := chat_template_of(part.path))}
        if len(templates) > 1:
            raise AdapterError(
                f"the adapters of '{model}' were trained with different chat templates",
                where="model",
                next_step="mix adapters that share one",
            )
        label = "+".join(f"{part.label}:{weight!r}" for part, weight in parts)
        unique = "+".join(sorted(f"{part.adapter_id}:{weight!r}" for part, weight in parts))
        return Served(label, unique, next(iter(templates.values()), parts[0][0].path), parts=parts)

    def check_card(self, card: Card) -> None:
        """AdapterError when the version was made for another base or tokenizer, or is no adapter at all."""
        if card.is_whole_model:
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
        """LoraWeights or AdapterChanges, read once however many ask; None for the base. A failed read is not remembered.

        AdapterError for an adapter that `scores` where one is wanted that speaks, and the other way round.
        """
        if served.adapter_id is None:
            return None
        key = (served.adapter_id, scores)
        task = self._weights.get(key)
        if task is None:
            task = asyncio.create_task(asyncio.to_thread(read_weights, served, self.model, scores=scores))
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


def read_weights(served: Served, model: Any, *, scores: bool = False) -> Any:
    """What is in the folder, as it changes `model`; AdapterError when it is bad or is not the content that was loaded.

    That of a mixture is the exact sum, of the rank that its parts' add up to; AdapterError where a part is no sum.
    """
    if served.parts:
        parts = [read_weights(part, model, scores=scores) for part, _ in served.parts]
        for (part, _), weights in zip(served.parts, parts, strict=True):
            if isinstance(weights, AdapterChanges):
                raise AdapterError(
                    f"{part.label} is no sum of matrices ({', '.join(sorted(weights.parts)) or 'it changes nothing'}), "
                    "so it cannot be in a mixture",
                    where="model",
                    next_step=f"ask it alone, or {ADVICE}",
                )
        return combine(parts, [weight for _, weight in served.parts]).weights
    assert served.path is not None
    weights = read_beside(served.path, model, scores=scores)
    if served.sha256 is not None and content_sha256(served.path) != served.sha256:
        raise AdapterError(
            f"the folder of '{served.label}' changed after it was loaded",
            where="model",
            next_step="unload and load it again",
        )
    return weights
