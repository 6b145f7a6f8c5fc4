"""The tensors of one step: tokens, explicit positions, the mask, and where keys and values go.

A step takes for each of some neighbouring rows its next few tokens: one for a row that decodes, a chunk for a row
that reads its prompt. Shorter chunks stand at the right end, so the last column is the last token of every row.
Query at position p sees keys 0…p of its own row, under a sliding window the last `window` of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from cairn.errors import ModelError
from cairn.generation.key_values import Placement
from cairn.models.attention import FULL, is_recurrent
from cairn.models.unwrap import text_config

SLIDING = "sliding_attention"


def layer_kinds(model: Any) -> frozenset[str]:
    """The kinds of attention in `model`; ModelError for one that the pool cannot serve."""
    config = text_config(model)
    kinds = frozenset(getattr(config, "layer_types", None) or ())
    if not kinds:
        sliding = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
        kinds = frozenset({SLIDING if sliding else FULL})
    strange = kinds - {FULL, SLIDING}
    if strange or is_recurrent(config) or getattr(config, "is_encoder_decoder", False):
        found = ", ".join(sorted(strange)) or "a recurrent or encoder-decoder architecture"
        raise ModelError(
            f"a '{config.model_type}' model has {found}, which the Generator cannot serve",
            next_step="serve a decoder with full or sliding attention",
        )
    return kinds


def placement(chunks: Sequence[Sequence[int]], starts: Sequence[int], *, first: int, device: Any) -> Placement:
    """Rows `first`, `first` + 1, … get `chunks`; `starts` are the tokens each row has already."""
    columns = max(len(chunk) for chunk in chunks)
    pool_rows, pool_positions, batch_rows, batch_columns = [], [], [], []
    for row, (chunk, start) in enumerate(zip(chunks, starts, strict=True)):
        for offset in range(len(chunk)):
            pool_rows.append(first + row)
            pool_positions.append(start + offset)
            batch_rows.append(row)
            batch_columns.append(columns - len(chunk) + offset)
    length = max(start + len(chunk) for chunk, start in zip(chunks, starts, strict=True))
    indices = (torch.tensor(i, device=device) for i in (pool_rows, pool_positions, batch_rows, batch_columns))
    return Placement(first, len(chunks), length, *indices)


def window_of(model: Any) -> int | None:
    """Tokens that a sliding layer sees; None where there is none."""
    sliding = getattr(text_config(model), "sliding_window", None)
    return int(sliding) if sliding else None


def step_inputs(
    chunks: Sequence[Sequence[int]],
    starts: Sequence[int],
    *,
    length: int,
    kinds: Iterable[str],
    window: int | None,
    dtype: torch.dtype,
    device: Any,
) -> dict[str, Any]:
    """`input_ids`, `position_ids` [rows, columns] and `attention_mask` [rows, 1, columns, length] (one per kind of
    layer where a model mixes them)."""
    columns = max(len(chunk) for chunk in chunks)
    tokens = torch.tensor([[0] * (columns - len(chunk)) + list(chunk) for chunk in chunks], device=device)
    begin = torch.tensor(list(starts), device=device)[:, None]
    pad = torch.tensor([columns - len(chunk) for chunk in chunks], device=device)[:, None]
    # A padded column takes its row's first new position: it sees something, and nobody sees it.
    positions = begin + (torch.arange(columns, device=device)[None] - pad).clamp(min=0)
    masks = {kind: _mask(positions, length, dtype, window if kind == SLIDING else None) for kind in kinds}
    mask: Any = masks if len(masks) > 1 else next(iter(masks.values()))
    return {"input_ids": tokens, "position_ids": positions, "attention_mask": mask}


def _mask(positions: torch.Tensor, length: int, dtype: torch.dtype, window: int | None) -> torch.Tensor:
    keys = torch.arange(length, device=positions.device)
    seen = keys <= positions[..., None]
    if window is not None:
        seen &= keys > positions[..., None] - window
    mask = torch.zeros(seen.shape, dtype=dtype, device=positions.device)
    return mask.masked_fill_(~seen, torch.finfo(dtype).min)[:, None]
