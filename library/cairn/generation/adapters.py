"""The adapters resident in a model: which slot is whose, who still uses it, and loading that leaves nothing behind.

A load is checked whole before a single number is written, so a refused adapter harms nobody. An adapter leaves its
slot only when no request uses it; unloading one in flight hides its name at once and frees the slot later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from cairn.adapters.linear_change import LinearChange, as_changes
from cairn.adapters.soft_prompts import SoftPrompt
from cairn.errors import AdapterError, did_you_mean
from cairn.generation.prompts import Prefix, prefix_of
from cairn.generation.slots import Routing, SlotEmbedding, SlotLinear, bucket, features


@dataclass(eq=False)
class Resident:
    """An adapter in its slot. `needs`: path of each changed layer → its rank there and the parts beside it; `uses` counts
    the requests in flight; `last_use` orders for eviction. `prompt`: its virtual tokens, and what they leave behind.
    `invocation`: the tokens that it waits for."""

    id: str
    slot: int
    rank: int
    needs: Mapping[str, tuple[int, frozenset[str]]] = field(repr=False, default_factory=dict)
    uses: int = 0
    last_use: int = 0
    prompt: SoftPrompt | None = field(repr=False, default=None)
    prefix: Prefix = field(repr=False, default=())
    invocation: tuple[int, ...] = ()

    @property
    def ahead(self) -> int:
        """Positions that its virtual tokens take."""
        return len(self.prompt) if self.prompt is not None else 0

    def over(self, model: Any) -> Any:
        """`model` with its virtual tokens, for a forward pass of whole rows; the rest is the routing's."""
        return self.prompt.over(model) if self.prompt is not None else model


BASE = Resident("", 0, 0)


class ResidentAdapters:
    """Slots 1…n of a model; slot 0 is the base. `max_length`: the window, in tokens."""

    def __init__(self, model: nn.Module, *, slots: int, max_rank: int, max_length: int | None = None) -> None:
        self.model, self.max_rank, self.max_length = model, max_rank, max_length
        self.routing = Routing()
        model.register_forward_pre_hook(self.routing.look, with_kwargs=True)
        self.slots = slots
        self._layers: dict[str, SlotLinear] = {}
        self._named: dict[str, Resident] = {}
        self._leaving: list[Resident] = []
        self._clock = 0

    def ids(self) -> list[str]:
        """Ids that requests may name."""
        return sorted(self._named)

    def idle(self) -> list[str]:
        """Ids without a request in flight, least recently used first."""
        return sorted((i for i, r in self._named.items() if not r.uses), key=lambda i: self._named[i].last_use)

    @property
    def free(self) -> int:
        """Empty slots."""
        return self.slots - len(self._named) - len(self._leaving)

    def load(self, adapter_id: str, weights: Any) -> None:
        """Put `weights` (`LoraWeights`, or `AdapterChanges` of `cairn.adapters.linear_change`) into a free slot;
        AdapterError changes nothing."""
        changes = as_changes(weights)
        self.check(adapter_id, changes)
        if not self.free:
            raise AdapterError(
                f"all {self.slots} slots are taken", where=adapter_id, next_step="unload an adapter first"
            )
        taken = {r.slot for r in (*self._named.values(), *self._leaving)}
        slot = next(number for number in range(1, self.slots + 1) if number not in taken)
        needs = {path: (change.rank, frozenset(change.parts())) for path, change in changes.layers.items()}
        resident = Resident(adapter_id, slot, changes.rank, needs, last_use=self._tick(), invocation=changes.invocation)
        try:
            self._make_room(resident)
            for path, change in changes.layers.items():
                self._layers[path].write(slot, change)
            if changes.prompt is not None:
                resident.prompt, resident.prefix = changes.prompt, prefix_of(self.model, changes.prompt)
            self.routing.needs[slot] = changes.parts
            if changes.invocation:
                self.routing.invocations[slot] = changes.invocation
        except BaseException:
            self._empty(resident)
            raise
        self._named[adapter_id] = resident

    def check(self, adapter_id: str, weights: Any) -> None:
        """AdapterError with every reason why `weights` cannot be loaded, slots aside."""
        problems = self._problems(adapter_id, weights)
        if problems:
            raise AdapterError("; ".join(problems), where=adapter_id, next_step="serve an adapter made for this base")

    def unload(self, adapter_id: str) -> bool:
        """Forget `adapter_id`; True when its slot is free at once, False when requests in flight still hold it."""
        resident = self._find(adapter_id)
        del self._named[adapter_id]
        if resident.uses:
            self._leaving.append(resident)
            return False
        self._empty(resident)
        return True

    def acquire(self, adapter_id: str | None) -> Resident:
        """The adapter for one more request; AdapterError when it is not loaded. Pair with `release`."""
        if adapter_id is None:
            return BASE
        resident = self._find(adapter_id)
        resident.uses += 1
        resident.last_use = self._tick()
        return resident

    def release(self, resident: Resident) -> None:
        """One request less."""
        if resident is BASE:
            return
        resident.uses -= 1
        if not resident.uses and resident in self._leaving:
            self._leaving.remove(resident)
            self._empty(resident)

    @contextmanager
    def using(self, adapter_id: str | None) -> Iterator[Any]:
        """Every forward inside runs with this adapter, whatever its batch; gives the model to score with."""
        resident = self.acquire(adapter_id)
        device = next(self.model.parameters()).device
        try:
            with self.routing.using([resident.slot], rank=resident.rank, device=device):
                yield resident.over(self.model)
        finally:
            self.release(resident)

    def _find(self, adapter_id: str) -> Resident:
        if adapter_id not in self._named:
            advice = did_you_mean(adapter_id, self._named) if self._named else "load it first"
            raise AdapterError(f"no adapter '{adapter_id}' is loaded", next_step=advice)
        return self._named[adapter_id]

    def _problems(self, adapter_id: str, weights: Any) -> list[str]:
        found = []
        if adapter_id in self._named:
            found.append(f"'{adapter_id}' is loaded already")
        changes = as_changes(weights)
        if changes.rank > self.max_rank:
            found.append(f"rank {changes.rank} is above the limit of {self.max_rank}")
        if changes.prompt is not None:
            found += filter(None, [changes.prompt.misfit(self.model)])
            if self.max_length is not None and len(changes.prompt) + 2 > self.max_length:
                found.append(f"{len(changes.prompt)} virtual tokens leave no room in a window of {self.max_length}")
        for path, change in changes.layers.items():
            found.extend(self._misfit(path, change))
        return found

    def _misfit(self, path: str, change: LinearChange) -> Iterator[str]:
        try:
            module = self._module(path)
            inputs, outputs = features(module)
        except AttributeError:
            yield f"the base has no module '{path}'"
            return
        except AdapterError as error:
            yield f"{path}: {error.what}"
            return
        wrong = change.misfit(inputs, outputs)
        if isinstance(module, nn.Embedding | SlotEmbedding) != (change.tokens is not None):
            yield f"{path} cannot carry such an adapter here: an embedding can have other rows, and nothing else can"
        elif wrong:
            yield f"{path} {wrong}"

    def _module(self, path: str) -> nn.Module:
        return self._layers[path] if path in self._layers else self.model.get_submodule(path)

    def _make_room(self, newcomer: Resident) -> None:
        for path in newcomer.needs:
            if path not in self._layers:
                self._layers[path] = self._wrap(path)
        residents = (newcomer, *self._named.values(), *self._leaving)
        for path, layer in self._layers.items():
            needs = [resident.needs[path] for resident in residents if path in resident.needs]
            rank = max((rank for rank, _ in needs), default=0)
            layer.reserve(bucket(rank), sorted({part for _, parts in needs for part in parts}))

    def _wrap(self, path: str) -> SlotLinear:
        parent, _, name = path.rpartition(".")
        owner = self.model.get_submodule(parent)
        linear = getattr(owner, name)
        floating = linear.weight.dtype if linear.weight.is_floating_point() else next(self.model.parameters()).dtype
        kind = SlotEmbedding if isinstance(linear, nn.Embedding) else SlotLinear
        layer = kind(linear, slots=self.slots + 1, routing=self.routing, dtype=floating)
        setattr(owner, name, layer)
        return layer

    def _empty(self, resident: Resident) -> None:
        self.routing.needs.pop(resident.slot, None)
        self.routing.invocations.pop(resident.slot, None)
        for path in resident.needs:
            if path in self._layers:
                self._layers[path].clear(resident.slot)

    def _tick(self) -> int:
        self._clock += 1
        return self._clock
