"""An adapter folded into its base, a LoRA as W + scaling · B·A, and taken out again by putting the kept weights back.

Subtracting the update would leave rounding errors that grow with every cycle; a copy is exact. Cost: the copies of
the changed weights while merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from transformers.pytorch_utils import Conv1D

from cairn.adapters.files import LoraWeights
from cairn.errors import AdapterError


def merge(model: Any, weights: LoraWeights) -> dict[str, torch.Tensor]:
    """Fold `weights` into the bare `model` in place; returns path → the weight as it was, for `restore`.

    The sum is formed in fp32 and rounded once to the weight's dtype.
    """
    kept = {path: model.get_submodule(path).weight.detach().clone() for path in weights.layers}
    with torch.no_grad():
        for path, (a, b) in weights.layers.items():
            module = model.get_submodule(path)
            delta = weights.scaling[path] * (b.float() @ a.float())
            delta = (delta.T if isinstance(module, Conv1D) else delta).to(module.weight.device)
            module.weight.copy_(module.weight.float() + delta)
    return kept


def restore(model: Any, kept: Mapping[str, torch.Tensor]) -> None:
    """Put back what `merge` returned, bit for bit."""
    with torch.no_grad():
        for path, weight in kept.items():
            model.get_submodule(path).weight.copy_(weight)


@contextmanager
def merged(model: Any, weights: LoraWeights) -> Iterator[Any]:
    """`model` with `weights` folded in for the duration of a block."""
    kept = merge(model, weights)
    try:
        yield model
    finally:
        restore(model, kept)


@torch.no_grad()
def merge_adapted(adapted: Any) -> dict[str, torch.Tensor]:
    """Fold the adapter of a PEFT model, of whatever method, into its base in place; returns what was there, for
    `unmerge_adapted`. AdapterError for a method whose change is none of weights."""
    before = {name: parameter.detach().clone() for name, parameter in _frozen(adapted)}
    try:
        adapted.merge_adapter()
    except (ValueError, NotImplementedError, AttributeError) as error:
        raise AdapterError(f"the adapter cannot be merged: {error}", next_step="keep it beside its base") from error
    return {name: before[name] for name, parameter in _frozen(adapted) if not torch.equal(parameter, before[name])}


@torch.no_grad()
def unmerge_adapted(adapted: Any, kept: Mapping[str, torch.Tensor]) -> None:
    """Take the adapter out again: the base is what it was, bit for bit."""
    try:
        adapted.unmerge_adapter()
    except NotImplementedError:  # OSF cannot, and need not: what was there is at hand
        for layer in adapted.modules():
            getattr(layer, "merged_adapters", []).clear()
    for name, parameter in _frozen(adapted):
        if name in kept:
            parameter.copy_(kept[name])


def _frozen(adapted: Any) -> list[tuple[str, torch.nn.Parameter]]:
    """The base's own parameters, by their names in the PEFT model."""
    prefix = adapted.base_model.prefix
    return [(name, p) for name, p in adapted.named_parameters() if prefix not in name]
