"""One pool of keys and values for all running requests, and the transformers cache that writes into it.

Per layer [rows, heads, capacity, width]. Running requests occupy the first rows without gaps, so a step attends over
a plain view of the pool and copies nothing; a request that leaves costs one copy of the row that takes its place.
Layers are allotted at their first use (their widths may differ), the capacity doubles up to the window.
Whatever lies beyond a request's length is hidden by the mask of the step and always finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer

FIRST_CAPACITY = 128


@dataclass(frozen=True)
class Placement:
    """Where the tokens of a step go: rows [first, first + rows), keys visible up to `length`.

    `pool_rows`, `pool_positions`: int64 [n], the place of each real token; `batch_rows`, `batch_columns`: int64 [n],
    where it stands in the step's [rows, columns].
    """

    first: int
    rows: int
    length: int
    pool_rows: torch.Tensor
    pool_positions: torch.Tensor
    batch_rows: torch.Tensor
    batch_columns: torch.Tensor


class KeyValuePool:
    """The storage. All lengths in tokens."""

    def __init__(self, *, rows: int, max_length: int) -> None:
        self.rows, self.max_length = rows, max_length
        self.capacity = min(FIRST_CAPACITY, max_length)
        self.layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def reserve(self, length: int) -> None:
        """Room for `length` tokens in every row."""
        if length <= self.capacity:
            return
        while self.capacity < length:
            self.capacity *= 2
        self.capacity = min(self.capacity, self.max_length)
        for index, pair in self.layers.items():
            grown = tuple(self._empty(tensor) for tensor in pair)
            for new, old in zip(grown, pair, strict=True):
                new[:, :, : old.shape[2]] = old
            self.layers[index] = (grown[0], grown[1])

    def write(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor, place: Placement
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the step's keys and values [rows, heads, columns, width]; return the views to attend over."""
        if layer not in self.layers:
            self.layers[layer] = (self._empty(keys), self._empty(values))
        views = []
        for pool, new in zip(self.layers[layer], (keys, values), strict=True):
            real = new.transpose(1, 2)[place.batch_rows, place.batch_columns]
            pool[place.pool_rows, :, place.pool_positions] = real
            views.append(pool[place.first : place.first + place.rows, :, : place.length])
        return views[0], views[1]

    def fill(self, row: int, prefix: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Begin a row with the keys and values [heads, n, width] of each layer."""
        self.reserve(max((keys.shape[1] for keys, _ in prefix), default=0))
        for layer, pair in enumerate(prefix):
            if layer not in self.layers:
                self.layers[layer] = (self._empty(pair[0][None]), self._empty(pair[1][None]))
            for pool, new in zip(self.layers[layer], pair, strict=True):
                pool[row, :, : new.shape[1]] = new

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` tokens of row `source` over row `target`."""
        for pair in self.layers.values():
            for tensor in pair:
                tensor[target, :, :length] = tensor[source, :, :length]

    def swap(self, one: int, other: int, length: int) -> None:
        """Exchange the first `length` tokens of two rows."""
        for pair in self.layers.values():
            for tensor in pair:
                kept = tensor[one, :, :length].clone()
                tensor[one, :, :length] = tensor[other, :, :length]
                tensor[other, :, :length] = kept

    def clear(self, row: int) -> None:
        """Zero a row: a masked key counts zero times its value, and zero times infinity is not a number."""
        for pair in self.layers.values():
            for tensor in pair:
                tensor[row] = 0

    def _empty(self, like: torch.Tensor) -> torch.Tensor:
        shape = (self.rows, like.shape[1], self.capacity, like.shape[3])
        return torch.zeros(shape, dtype=like.dtype, device=like.device)


class StepCache(Cache):
    """What the model sees as its cache during one step."""

    def __init__(self, pool: KeyValuePool, place: Placement) -> None:
        super().__init__(layer_class_to_replicate=DynamicLayer)
        self.pool, self.place = pool, place

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Called by each attention layer."""
        return self.pool.write(layer_idx, key_states, value_states, self.place)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens seen before this step by the longest row; positions are explicit, so only a hint."""
        return self.place.length - 1

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """The keys' length and offset; the mask is explicit and agrees."""
        return self.place.length, 0
