"""The first rows of a run, for a method that begins in them, and what is measured on them: the inputs of linears and the
gradients of their weights, through the very forward pass that training uses, padding left out.

Cost: fp32 [in, in] for each distinct input of a linear, or an fp32 copy of the targets' weights for their gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cairn.errors import AdapterError
from cairn.models.attention import forward_inputs
from cairn.models.forward import logits_at
from cairn.models.unwrap import base_of


@dataclass(frozen=True)
class Preview:
    """`batches`: the run's first rows (`cairn.data.batch.Batch`), on the model's device. `losses(model)` yields the stage's
    sum of each of them."""

    batches: Sequence[Any]
    losses: Callable[[Any], Iterator[torch.Tensor]]


@dataclass
class Moments:
    """Of `count` input vectors: their sum [in] and the sum of their outer products [in, in], fp32."""

    count: int
    total: torch.Tensor
    products: torch.Tensor

    def second(self) -> torch.Tensor:
        """Mean of x·xᵀ, float64 [in, in]."""
        return self.products.double() / self.count

    def covariance(self) -> torch.Tensor:
        """The same of x − mean x."""
        mean = self.total.double() / self.count
        return self.second() - torch.outer(mean, mean)


@torch.no_grad()
def input_moments(model: Any, paths: Sequence[str], preview: Preview, *, trained: bool) -> dict[str, Moments]:
    """Path → Moments of that linear's inputs at all positions, or only at those that are `trained`.

    Layers that are given the very same input share one. AdapterError for a layer that does not see every position.
    """
    watch, base = _Watch(), base_of(model)
    handles = [base.get_submodule(path).register_forward_pre_hook(watch.of(path)) for path in paths]
    try:
        for batch in preview.batches:
            watch.begin(batch.weights > 0 if trained else batch.segments > 0)
            given = forward_inputs(batch.tokens, batch.segments, batch.positions, model, prefixes=batch.prefixes)
            logits_at(model, given, batch.tokens.new_zeros(0))
    finally:
        for handle in handles:
            handle.remove()
    silent = sorted(set(paths) - watch.found.keys())
    if silent or not all(moments.count for moments in watch.found.values()):
        raise AdapterError(
            f"{silent[0]} was given no input" if silent else "no position of the first rows is trained",
            where="adapter.init",
            next_step="leave that layer out of adapter.targets, or set adapter.init=zero",
        )
    return {path: watch.found[path] for path in paths}


class _Watch:
    """Adds up what passes; `last` is the input that the layer `leader` was given."""

    def __init__(self) -> None:
        self.found: dict[str, Moments] = {}
        self.wanted = torch.zeros(0, dtype=torch.bool)
        self.last: torch.Tensor | None = None
        self.leader = ""

    def begin(self, wanted: torch.Tensor) -> None:
        self.wanted, self.last = wanted.flatten(), None

    def of(self, path: str) -> Callable[..., None]:
        def look(module: Any, given: tuple[torch.Tensor, ...]) -> None:
            if given[0] is self.last:
                self.found[path] = self.found[self.leader]
                return
            self.last, self.leader = given[0], path
            rows = given[0].reshape(-1, given[0].shape[-1])
            if len(rows) != len(self.wanted):
                raise AdapterError(
                    f"{path} sees {len(rows)} of the {len(self.wanted)} positions",
                    where="adapter.init",
                    next_step="leave it out of adapter.targets, or set adapter.init=zero",
                )
            rows = rows[self.wanted].float()
            before = self.found.setdefault(path, Moments(0, torch.zeros_like(rows[:0].sum(0)), rows[:0].t() @ rows[:0]))
            before.count += len(rows)
            before.total += rows.sum(0)
            before.products += rows.t() @ rows

        return look


def weight_gradients(model: Any, paths: Sequence[str], preview: Preview) -> dict[str, torch.Tensor]:
    """Path → gradient of the stage's loss over all of the rows with respect to that linear's weight, fp32, in its layout."""
    base = base_of(model)
    weights = {path: base.get_submodule(path).weight for path in paths}
    sums = {path: torch.zeros_like(weight, dtype=torch.float32) for path, weight in weights.items()}
    for weight in weights.values():
        weight.requires_grad_(True)
    try:
        for loss in preview.losses(model):
            found = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
            for path, gradient in zip(paths, found, strict=True):
                if gradient is not None:
                    sums[path] += gradient
    finally:
        for weight in weights.values():
            weight.requires_grad_(False)
    return sums
