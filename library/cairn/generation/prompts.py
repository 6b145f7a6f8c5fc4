"""A soft prompt among the rows of a batch: keys and values that a row has before it has read a token.

Virtual tokens see only each other, so what they leave behind is the same for every request: it is computed once when
the adapter is loaded, and copied into the row that a request gets. Then the row is like any other, with as many tokens
already cached. Cost: one forward pass at loading; keys and values of n tokens, once for the adapter and once a row.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache

from cairn.adapters.soft_prompts import SoftPrompt
from cairn.models.unwrap import text_config
from cairn.models.virtual_tokens import by_layer

Prefix = tuple[tuple[torch.Tensor, torch.Tensor], ...]
"""(keys, values) [heads, n, size] of each layer."""


@torch.no_grad()
def prefix_of(model: Any, prompt: SoftPrompt) -> Prefix:
    """What `prompt`, which fits, leaves behind in `model` as the base."""
    weight = model.get_input_embeddings().weight
    values = prompt.values.to(weight.device, weight.dtype)
    if prompt.into_keys:
        pairs = by_layer(values, text_config(model))
        return tuple((keys.transpose(0, 1), own.transpose(0, 1)) for keys, own in pairs)
    cache = DynamicCache()
    places = torch.arange(len(prompt), device=weight.device)[None]
    handle = model.get_input_embeddings().register_forward_hook(lambda module, given, output: values[None].to(output))
    try:
        model(input_ids=torch.zeros_like(places), position_ids=places, past_key_values=cache, use_cache=True)
    finally:
        handle.remove()
    layers: Any = cache.layers
    return tuple((layer.keys[0], layer.values[0]) for layer in layers)
