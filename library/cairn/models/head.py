"""A loss taken where the hidden states enter the head, some positions at a time: no more than a chunk of logits lives.

Logits are the largest tensor of a step, with an fp32 copy and a gradient beside them. Here the head is asked, inside
the model's own forward pass, for a loss of each wanted position instead: wrappers, hooks and a head that ZeRO 3 gathers
work as ever. A frozen head's loss and its gradient with respect to a position's hidden state come from one product
each, as without chunks, for that gradient is what arrives for the loss times a vector that the forward pass knows. A
trained head's logits are computed again in the backward pass.

A family that caps or scales what its head gives would do it to the losses; a probe that is sent along shows it, once a
model, and there all logits are computed. Cost: `CHUNK_LOGITS` numbers three times, and n · hidden of gradient.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import get_device_states, set_device_states

from cairn.models.forward import logits_at
from cairn.models.unwrap import base_of

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Logits [n, vocabulary] and labels [n] to losses [n] in fp32, each of its own position alone."""

CHUNK_LOGITS = 2**23
PROBE = 12345.678
"""No bf16 number, and beyond every softcap."""

_ends_in_head: weakref.WeakKeyDictionary[nn.Module, bool] = weakref.WeakKeyDictionary()


def losses_at(
    policy: Callable[..., Any], inputs: dict[str, Any], positions: torch.Tensor, labels: torch.Tensor, loss: Loss
) -> torch.Tensor:
    """`loss(logits, labels)` [n], fp32, of the logits at `positions`: int64 [n], flat indices into `input_ids`.

    `policy(**inputs)` is a causal language model, bare or under PEFT or DeepSpeed; no position at all still runs it.
    """
    if not _head_is_last(policy, inputs):
        return loss(logits_at(policy, inputs, positions), labels)
    head = _head(policy)
    logits_of = head.forward

    def in_place_of_logits(hidden: torch.Tensor) -> torch.Tensor:
        rows = hidden.flatten(0, -2)[positions]
        return _in_chunks(head, logits_of, rows, labels, loss)[None, None]

    with _forward(head, in_place_of_logits):
        losses: torch.Tensor = policy(**inputs).logits
    return losses.flatten()


def _in_chunks(head: nn.Module, logits_of: Any, rows: torch.Tensor, labels: torch.Tensor, loss: Loss) -> torch.Tensor:
    def of(some: torch.Tensor, their: torch.Tensor) -> torch.Tensor:
        return loss(logits_of(some), their)

    size = max(1, CHUNK_LOGITS // _vocabulary(head))
    if len(rows) == 0:
        return rows.sum(1).float()
    trained = [parameter for parameter in head.parameters() if parameter.requires_grad]
    losses: torch.Tensor
    if torch.is_grad_enabled() and not trained:
        losses = _FrozenHead.apply(rows, labels, size, of)
        return losses
    if len(rows) <= size:
        return of(rows, labels)
    losses = _TrainedHead.apply(rows, labels, size, of, *trained)
    return losses


class _FrozenHead(torch.autograd.Function):
    """Losses whose gradients with respect to their rows are computed beside them."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, labels: torch.Tensor, size: int, of: Loss) -> torch.Tensor:
        losses, gradients = [], []
        for some, their in zip(rows.detach().split(size), labels.split(size), strict=True):
            with torch.enable_grad():
                some.requires_grad_()
                losses.append(of(some, their))
                gradients += torch.autograd.grad(losses[-1].sum(), some)
        ctx.save_for_backward(torch.cat(gradients))
        return torch.cat([part.detach() for part in losses])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        (of_unit,) = ctx.saved_tensors
        return (gradient[:, None] * of_unit).to(of_unit.dtype), None, None, None


class _TrainedHead(torch.autograd.Function):
    """Losses that are computed once more for their gradients; those of the head's parameters add up in fp32."""

    @staticmethod
    def forward(
        ctx: Any, rows: torch.Tensor, labels: torch.Tensor, size: int, of: Loss, *trained: torch.Tensor
    ) -> torch.Tensor:
        ctx.save_for_backward(rows, labels, *trained)
        ctx.size, ctx.of, ctx.drawn = size, of, (torch.get_rng_state(), get_device_states(rows))
        return torch.cat([of(*chunk) for chunk in zip(rows.split(size), labels.split(size), strict=True)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        rows, labels, *trained = ctx.saved_tensors
        sums = [
            torch.zeros_like(parameter, dtype=torch.promote_types(parameter.dtype, torch.float32))
            for parameter in trained
        ]
        of_rows = []
        on_cpu, (devices, on_devices) = ctx.drawn
        with torch.random.fork_rng(devices), torch.enable_grad():
            torch.set_rng_state(on_cpu)
            set_device_states(devices, on_devices)
            for some, their, share in zip(*(part.split(ctx.size) for part in (rows, labels, gradient)), strict=True):
                some = some.detach().requires_grad_()
                of_some, *found = torch.autograd.grad(ctx.of(some, their), [some, *trained], share)
                of_rows.append(of_some)
                for total, part in zip(sums, found, strict=True):
                    total += part
        totals = (total.to(parameter.dtype) for total, parameter in zip(sums, trained, strict=True))
        return torch.cat(of_rows), None, None, None, *totals


@torch.no_grad()
def _head_is_last(policy: Any, inputs: dict[str, Any]) -> bool:
    """Whether the model's logits are what its head gives, to the bit; asked once, by one forward pass."""
    base, head = base_of(policy), _head(policy)
    if head is None:
        return False
    if base not in _ends_in_head:
        tokens = inputs["input_ids"]
        probe = torch.full((1, 1, 1), PROBE, device=tokens.device)
        with torch.random.fork_rng([tokens.device] if tokens.is_cuda else []), _forward(head, lambda hidden: probe):
            seen = policy(**inputs).logits
        _ends_in_head[base] = bool(torch.equal(seen, probe))
    return _ends_in_head[base]


@contextmanager
def _forward(head: nn.Module, replacement: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """The head computes `replacement`, under whatever hooks it has."""
    before = head.__dict__.get("forward")
    head.__dict__["forward"] = replacement
    try:
        yield
    finally:
        del head.__dict__["forward"]
        if before is not None:
            head.__dict__["forward"] = before


def _head(policy: Any) -> Any:
    base = base_of(policy)
    return base.get_output_embeddings() if hasattr(base, "get_output_embeddings") else None


def _vocabulary(head: Any) -> int:
    return int(getattr(head, "out_features", None) or next(head.parameters()).shape[0])
