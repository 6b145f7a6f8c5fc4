"""Virtual tokens before every sample: trained vectors that a model reads as if they were tokens.

Each segment of a row is preceded by `virtual_tokens` placeholders with positions of their own (0, 1, …; the sample's
own go on from there), of the same segment, so packing, masks, shared prompts and windows hold as ever. A soft prompt is
put in the place of their embeddings, a prefix in the place of their keys and values in every layer. On the way out they
are taken away before the head: logits and losses lie where the caller's tokens lie, and no stage ever sees them.

Cost: the placeholders are computed like tokens, once for each segment.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from cairn.errors import ModelError
from cairn.models.attention import forward_inputs
from cairn.models.load import position_limit
from cairn.models.unwrap import text_config


@dataclass(frozen=True)
class Layout:
    """Rows with the placeholders in: int64 [rows, longer]. `places` int64 [rows, length]: the flat index where each token
    of before stands now; `virtual` int64 [segments, n]: those of the placeholders."""

    tokens: torch.Tensor
    segments: torch.Tensor
    positions: torch.Tensor
    prefixes: torch.Tensor | None
    places: torch.Tensor
    virtual: torch.Tensor

    def put(self, hidden: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """`hidden` [rows, longer, …] (or all rows as one) with `values` [n, …] at every segment's placeholders."""
        many = values.to(hidden).repeat(len(self.virtual), *[1] * (values.ndim - 1))
        return hidden.flatten(0, 1).index_copy(0, self.virtual.flatten(), many).view(hidden.shape)


def laid_out(
    tokens: torch.Tensor, segments: torch.Tensor, positions: torch.Tensor, prefixes: torch.Tensor | None, count: int
) -> Layout:
    """`count` placeholders before each segment that goes on from no other; int64 [rows, length], as
    `cairn.models.attention.forward_inputs` takes them."""
    first = torch.ones_like(segments, dtype=torch.bool)
    first[:, 1:] = segments[:, 1:] != segments[:, :-1]
    first &= segments > 0
    if prefixes is not None:
        first &= prefixes == 0
    rows, length = tokens.shape
    columns = torch.arange(length, device=tokens.device) + count * first.cumsum(1)
    longer = length + count * int(first.sum(1).max())
    places = columns + longer * torch.arange(rows, device=tokens.device)[:, None]
    steps = torch.arange(count, device=tokens.device)
    virtual = places[first][:, None] - count + steps

    def spread(values: torch.Tensor, at_placeholders: torch.Tensor | None) -> torch.Tensor:
        out = values.new_zeros(rows * longer)
        out[places.flatten()] = values.flatten()
        if at_placeholders is not None:
            out[virtual] = at_placeholders
        return out.view(rows, longer)

    return Layout(
        tokens=spread(tokens, None),
        segments=spread(segments, segments[first][:, None].expand_as(virtual)),
        positions=spread(torch.where(segments > 0, positions + count, positions), steps.expand_as(virtual)),
        prefixes=None if prefixes is None else spread(prefixes, None),
        places=places,
        virtual=virtual,
    )


class Prompted(nn.Module):
    """`base` with virtual tokens before each sample: `prompt()` [n, width] are their embeddings or, `into_keys`, the keys
    and values of every layer in turn. A call takes what `forward_inputs` makes, or `input_ids` of whole rows alone."""

    def __init__(self, base: nn.Module, prompt: nn.Module, *, count: int, into_keys: bool = False) -> None:
        super().__init__()
        self.base_model = nn.ModuleDict({"model": base})
        self.prompt, self.virtual_tokens, self.into_keys = prompt, count, into_keys

    @property
    def config(self) -> Any:
        """The base's."""
        return self.get_base_model().config

    def get_base_model(self) -> Any:
        """The transformers model."""
        return self.base_model["model"]

    def merge_and_unload(self, **options: Any) -> Any:
        """ModelError: there is nothing in the base's weights that could stand for them."""
        raise ModelError(
            "virtual tokens cannot be folded into the base's weights, and are no matrices that could be a LoRA",
            next_step="serve them beside their base, or give them to PEFT: cairn export --to peft",
        )

    def gradient_checkpointing_enable(self, **options: Any) -> None:
        """As transformers'. ModelError for keys and values, which a layer that runs again would not find."""
        if self.into_keys:
            raise ModelError(
                "a prefix of keys and values does not go with gradient checkpointing",
                where="training.gradient_checkpointing",
                next_step="leave it out, or train prompt_tuning",
            )
        self.get_base_model().gradient_checkpointing_enable(**options)

    def forward(
        self,
        input_ids: torch.Tensor,
        *,
        segments: torch.Tensor | None = None,
        positions: torch.Tensor | None = None,
        prefixes: torch.Tensor | None = None,
        logits_to_keep: torch.Tensor | None = None,
        **options: Any,
    ) -> Any:
        """The base's output, with logits [rows, length or kept, vocabulary] of the given tokens alone."""
        base = self.get_base_model()
        if segments is None or positions is None:
            segments = torch.ones_like(input_ids)
            positions = torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
        self._require_room(positions)
        layout = laid_out(input_ids, segments, positions, prefixes, self.virtual_tokens)
        inputs = forward_inputs(layout.tokens, layout.segments, layout.positions, base, prefixes=layout.prefixes)
        kept = layout.places if logits_to_keep is None else layout.places[:, logits_to_keep]
        with _before_head(base, kept), self._in_place(layout):
            return base(**(inputs | options))

    def _require_room(self, positions: torch.Tensor) -> None:
        limit = position_limit(self.config)
        if limit is None or positions.shape[1] + self.virtual_tokens <= limit:
            return
        longest = int(positions.max()) + 1 + self.virtual_tokens
        if longest > limit:
            raise ModelError(
                f"{longest} positions, {self.virtual_tokens} of them virtual tokens, and the model has {limit}",
                next_step=f"use a window of at most {limit - self.virtual_tokens} tokens",
            )

    @contextmanager
    def _in_place(self, layout: Layout) -> Iterator[None]:
        base, values = self.get_base_model(), self.prompt()
        with ExitStack() as hooks:
            if self.into_keys:
                replaced = _Replaced(layout, by_layer(values, text_config(base)))
                for module in _attentions(base):
                    hooks.callback(module.register_forward_pre_hook(replaced.given, with_kwargs=True).remove)
            else:
                embedding = base.get_input_embeddings()
                hooks.callback(embedding.register_forward_hook(lambda m, i, out: layout.put(out, values)).remove)
            yield


class Fixed(nn.Module):
    """A prompt that is its parameter."""

    def __init__(self, values: torch.Tensor) -> None:
        super().__init__()
        self.values = nn.Parameter(values)

    def forward(self) -> torch.Tensor:
        """A copy [n, width], which outlives a parameter that ZeRO 3 takes apart again."""
        return self.values.clone()


class _Replaced:
    """What an attention takes for its cache: it puts a prefix where the placeholders' keys and values would be."""

    def __init__(self, layout: Layout, layers: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        self.layout, self.layers = layout, layers

    def given(self, module: Any, arguments: Any, keywords: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The pre-hook that hands it to an attention."""
        return arguments, keywords | {"past_key_values": self}

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer: int, *others: Any) -> Any:
        """[rows, heads, longer, size] each, after the rotation; as transformers' caches do."""
        return tuple(
            self.layout.put(found.transpose(1, 2), own).transpose(1, 2)
            for found, own in zip((keys, values), self.layers[layer], strict=True)
        )


def key_shape(config: Any) -> tuple[int, int, int]:
    """(layers, heads, size) of a model's keys. ModelError where its layers differ, or share them."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    differing = ("per_layer_config", "global_head_dim", "num_kv_shared_layers", "kv_lora_rank", "multi_query")
    fields = text.to_dict()
    if any(fields.get(name) for name in differing):
        raise ModelError(f"the layers of a '{text.model_type}' model have keys of different shapes")
    heads = text.num_attention_heads
    size = getattr(text, "head_dim", None) or text.hidden_size // heads
    return text.num_hidden_layers, getattr(text, "num_key_value_heads", None) or heads, size


def by_layer(values: torch.Tensor, config: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """(keys, values) [n, heads, size] of each layer, out of PEFT's [n, layers · 2 · heads · size]."""
    layers, heads, size = key_shape(config)
    split = values.view(len(values), layers, 2, heads, size)
    return [(split[:, layer, 0], split[:, layer, 1]) for layer in range(layers)]


@torch.no_grad()
def keys_and_values(model: Any, tokens: list[int]) -> torch.Tensor:
    """What `model` leaves behind in every layer when it reads `tokens`, as `by_layer` takes it apart."""
    from transformers import DynamicCache

    cache: Any = DynamicCache()
    device = model.get_input_embeddings().weight.device
    model(input_ids=torch.tensor([tokens], device=device), past_key_values=cache, use_cache=True)
    parts = [part[0].transpose(0, 1) for layer in cache.layers for part in (layer.keys, layer.values)]
    return torch.stack(parts, 1).flatten(1)


def _attentions(base: nn.Module) -> list[nn.Module]:
    found = [
        module
        for module in base.modules()
        if hasattr(module, "layer_idx") and type(module).__name__.endswith("Attention")
        if "past_key_values" in inspect.signature(module.forward).parameters
    ]
    if len(found) != key_shape(text_config(base))[0]:
        raise ModelError(
            f"{type(base).__name__} has attention that takes no keys from outside", next_step="train prompt_tuning"
        )
    return found


@contextmanager
def _before_head(base: Any, kept: torch.Tensor) -> Iterator[None]:
    """The head is given the hidden states at the flat places `kept` [rows, some] and no others."""
    handle = base.get_output_embeddings().register_forward_pre_hook(
        lambda module, given: (given[0].flatten(0, 1)[kept], *given[1:])
    )
    try:
        yield
    finally:
        handle.remove()
