"""Several LoRAs over one model in memory, for a notebook: switched, weighted, stacked and merged, the base untouched.

    adapted = Adapted(model)
    adapted.add("support", folder)            # or LoraWeights
    adapted.activate("support", "legal", weights=(0.7, 0.3))
    adapted.model.generate(...)

What is active is one update per linear, the exact combination of its parts, added by a hook on that linear: the base's
weights are never written to, but between `merge` and `unmerge`, which puts the kept copies back bit for bit.
Cost: a forward pays for the sum of the active ranks, whatever else is registered.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import linear
from torch.utils.hooks import RemovableHandle

from cairn.adapters.combine import DENSITY, combine
from cairn.adapters.factors import Deviation
from cairn.adapters.files import LoraWeights, read_lora, shape_problems
from cairn.adapters.merge import merge, restore
from cairn.errors import AdapterError, did_you_mean
from cairn.models.linears import linear_shapes


class Adapted:
    """`model`, which speaks, and the adapters added to it by name; none is active at first."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.adapters: dict[str, LoraWeights] = {}
        self.active: dict[str, float] = {}
        self._current: LoraWeights | None = None
        self._hooks: list[RemovableHandle] = []
        self._kept: dict[str, torch.Tensor] | None = None

    def add(self, name: str, adapter: LoraWeights | str | Path) -> None:
        """Register an adapter, or the one in a PEFT directory; AdapterError where it does not fit or the name is taken."""
        weights = adapter if isinstance(adapter, LoraWeights) else read_lora(adapter)
        problems = list(shape_problems(weights.layers, linear_shapes(self.model)))
        if weights.head is not None:
            problems.append("it scores and does not speak")
        if name in self.adapters:
            problems.append("the name is taken")
        if problems:
            raise AdapterError(
                "; ".join(problems[:5]), where=name, next_step="add an adapter of this base, by a new name"
            )
        self.adapters[name] = weights

    def delete(self, name: str) -> None:
        """Forget an adapter; AdapterError while it is active."""
        self._find(name)
        if name in self.active:
            raise AdapterError(f"'{name}' is active", next_step="activate others first, or none: activate()")
        del self.adapters[name]

    def activate(self, *names: str, weights: Sequence[float] | None = None) -> None:
        """Answer as the base plus these, each by its weight (1 where not given); without names, as the base."""
        if len(set(names)) < len(names):
            raise AdapterError(
                "an adapter is named twice", next_step="name each once, with the weight that it is to have"
            )
        wanted = weights if weights is not None else [1.0] * len(names)
        combined = combine([self._find(name) for name in names], wanted).weights if names else None
        self._require_unmerged()
        self._unhook()
        self.active = dict(zip(names, wanted, strict=False))
        self._current = combined
        self._hook()

    def merge(self) -> None:
        """Fold what is active into the base's weights, until `unmerge`; nothing else may be activated meanwhile."""
        self._require_unmerged()
        if self._current is None:
            raise AdapterError("nothing is active that could be merged", next_step="activate an adapter first")
        self._kept = merge(self.model, self._current)
        self._unhook()

    def unmerge(self) -> None:
        """Put the base's weights back, bit for bit; what was active is active beside them again."""
        if self._kept is None:
            raise AdapterError("nothing is merged", next_step="merge() comes first")
        restore(self.model, self._kept)
        self._kept = None
        self._hook()

    def stack(self, names: Sequence[str], *, name: str) -> Deviation:
        """Register `names`, all active together, as one adapter; the deviation is that of rounding to fp32."""
        return self.combine(dict.fromkeys(names, 1.0), name=name)

    def combine(
        self,
        parts: dict[str, float],
        *,
        name: str,
        how: str = "cat",
        rank: int | None = None,
        density: float = DENSITY,
        seed: int = 0,
    ) -> Deviation:
        """Register Σ weight · adapter under `name`, made as `cairn.adapters.combine.combine` makes it; returns its error."""
        adapters = [self._find(part) for part in parts]
        made = combine(adapters, list(parts.values()), how=how, rank=rank, density=density, seed=seed)
        self.add(name, made.weights)
        return made.error

    def _find(self, name: str) -> LoraWeights:
        if name not in self.adapters:
            advice = did_you_mean(name, self.adapters) if self.adapters else "add one first"
            raise AdapterError(f"there is no adapter '{name}'", next_step=advice)
        return self.adapters[name]

    def _require_unmerged(self) -> None:
        if self._kept is not None:
            raise AdapterError(f"{' + '.join(self.active)} is merged", next_step="unmerge() first")

    def _hook(self) -> None:
        if self._current is None:
            return
        for path, (a, b) in self._current.layers.items():
            module = self.model.get_submodule(path)
            self._hooks.append(module.register_forward_hook(_adding(a, b * self._current.scaling[path])))

    def _unhook(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()


def _adding(a: torch.Tensor, b: torch.Tensor) -> Any:
    """A forward hook that adds B·A·x; the factors follow the input's device and dtype."""
    placed = {"down": a, "up": b}

    def add(module: Any, given: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        hidden = given[0]
        for name, factor in placed.items():
            placed[name] = factor.to(hidden.device, hidden.dtype)
        return output + linear(linear(hidden, placed["down"]), placed["up"])

    return add
