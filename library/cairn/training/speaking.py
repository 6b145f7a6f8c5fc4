"""The model that is being trained, as one that can generate, without a second set of weights.

The Generator freezes its model and changes its layers, so it gets modules of its own over the same storage: what the
optimizer writes into the weights later does not matter, for the copy is made anew each time. Cost: the tree of modules,
and while it lives the packed copies that `FrozenLinear` makes.
"""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from cairn.adapters.soft_prompts import prompt_of
from cairn.models.unwrap import base_of


def speaking_copy(model: nn.Module) -> Any:
    """The transformers model in `model`, its adapter in it, frozen, on the same storage, without anybody's hooks; with its
    virtual tokens or its invocation, where it has them."""
    original, prompt = base_of(model), prompt_of(model)
    shared: dict[int, Any] = {id(p): nn.Parameter(p.data, requires_grad=False) for p in original.parameters()}
    shared |= {id(buffer): buffer for buffer in original.buffers()}
    speaking = copy.deepcopy(original, shared)
    for module in speaking.modules():
        for hooks in (
            module._forward_pre_hooks,
            module._forward_hooks,
            module._backward_pre_hooks,
            module._backward_hooks,
        ):
            hooks.clear()
    awaited = next((layer.invocation for layer in speaking.modules() if hasattr(layer, "invocation")), None)
    if awaited is not None:
        speaking.invocation = awaited
    return speaking.eval() if prompt is None else prompt.over(speaking).eval()
