"""What a forward pass keeps for the backward pass, counted on the meta device: no weights, no arithmetic.

The model is called as in training, and every tensor that autograd saves is counted once by its storage, the weights left
out; so the figure follows the family, the adapter's targets, dropout and the dtypes without a formula for each. Attention
stands in by what a memory-efficient kernel keeps: queries, keys and values of every head, the result, and a number for
each row of the softmax (Dao et al. 2022, arXiv 2205.14135, algorithm 4). Where activations are recomputed, the input of
every layer stays, and the largest layer's own once (Chen et al. 2016, arXiv 1604.06174).

Not counted: the backward pass's own, the allocator's loss, and whole attention matrices where a model needs them
(dropout in its attention, as GPT-2; a softcap, as Gemma 2).
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from cairn.models.invocation import invocation_of
from cairn.models.unwrap import base_of, prompted

ATTENTION = "cairn_counted"
OUTSIDE = ""


def register_counted_attention() -> str:
    """The name under which transformers finds the stand-in, for a config on the meta device."""
    from transformers import AttentionInterface, AttentionMaskInterface

    def attend(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **options: Any) -> Any:
        groups = query.shape[1] // key.shape[1]
        keys, values = (part.repeat_interleave(groups, 1) if groups > 1 else part for part in (key, value))
        return _Attention.apply(query, keys, values).transpose(1, 2).contiguous(), None

    AttentionInterface.register(ATTENTION, attend)
    AttentionMaskInterface.register(ATTENTION, lambda *_, **__: None)
    return ATTENTION


def kept_bytes(model: nn.Module, *, rows: int, length: int, recomputed: bool) -> int:
    """Bytes that a training step keeps of `rows` × `length` tokens up to the last hidden state.

    `model` is on the meta device, its attention the stand-in. recomputed: gradient checkpointing. Virtual tokens count once
    a row, an adapter that waits for an invocation as one that acts everywhere.
    """
    virtual, awaited, embedding = prompted(model), invocation_of(model), base_of(model).get_input_embeddings()
    learns: Any = contextlib.nullcontext()
    if virtual is not None:
        length += virtual.virtual_tokens
        learns = _removing(embedding.register_forward_hook(lambda module, given, output: output.requires_grad_()))
    if awaited is not None:
        awaited.mask = torch.ones(rows, length, dtype=torch.bool, device="meta")
    tokens = torch.zeros(rows, length, dtype=torch.long, device="meta")
    mask = torch.ones(rows, 1, length, length, dtype=torch.bool, device="meta")  # given, so that none is worked out
    with learns, counted(model) as kept:
        hidden = base_of(model).base_model(input_ids=tokens, attention_mask=mask, use_cache=False).last_hidden_state
    layers = {name: size for name, size in kept.items() if name != OUTSIDE}
    if not recomputed or not layers:
        return sum(kept.values())
    return kept[OUTSIDE] + len(layers) * hidden.numel() * hidden.element_size() + max(layers.values())


@contextmanager
def _removing(handle: Any) -> Iterator[None]:
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def counted(model: nn.Module) -> Iterator[dict[str, int]]:
    """Fills layer → bytes that autograd saves in the block while that layer runs; "" is outside of all layers."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    kept: dict[str, int] = defaultdict(int)
    alive, running, handles = [], [OUTSIDE], []
    seen = {_storage(tensor) for tensor in (*model.parameters(), *model.buffers())}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if _storage(tensor) not in seen:
            seen.add(_storage(tensor))
            alive.append(tensor)
            kept[running[-1]] += tensor.untyped_storage().nbytes()
        return tensor

    for name, module in base_of(model).named_modules():
        if isinstance(module, GradientCheckpointingLayer):
            handles.append(module.register_forward_pre_hook(lambda *_, name=name: running.append(name)))
            handles.append(module.register_forward_hook(lambda *_: [running.pop(), None][1]))
    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            yield kept
    finally:
        for handle in handles:
            handle.remove()


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        result = query.new_empty(*query.shape[:-1], value.shape[-1])
        sums = query.new_empty(query.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(query, key, value, result, sums)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        raise AssertionError("the stand-in only counts")
