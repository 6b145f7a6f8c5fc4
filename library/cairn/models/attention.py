"""What a model is called with, so that samples packed into one row never see each other.

The tokens of a row carry a segment number; attention is causal within a segment and nothing else. Three ways, all
with equal results: no mask where every row is one segment (the fast causal kernels; padding stands at the end and is
never looked at), an explicit block-diagonal mask for eager and sdpa, and one flat row with restarting positions for
the flash kernels. Layers with a sliding window or chunks get transformers' own mask, which it derives from the
restarting positions. A recurrent layer carries its state across borders and is refused.

Where the model attends segment by segment (`cairn.models.kernels.segment_attention`), it is told their spans too, and
the mask is for layers that do not hear of them.

Cost: the explicit mask is [rows, 1, length, length] in the model's dtype.
"""

from __future__ import annotations

from typing import Any

import torch

from cairn.errors import ModelError
from cairn.models.invocation import invocation_of
from cairn.models.kernels.segment_attention import attends_by_segment, spans_of
from cairn.models.unwrap import base_of, prompted, text_config

FULL = "full_attention"
MASKED_LAYERS = (FULL, "sliding_attention", "chunked_attention")
"""Layer kinds that see nothing but what a mask shows them."""


def forward_inputs(
    tokens: torch.Tensor,
    segments: torch.Tensor,
    positions: torch.Tensor,
    model: Any,
    *,
    prefixes: torch.Tensor | None = None,
) -> dict[str, Any]:
    """Keyword arguments for `model` (or its PEFT wrapper, or its engine): no cache, segments isolated.

    All int64 [rows, length]; `segments` ascend within a row and end with zeros (padding); `positions` count
    from 0 in each segment. `prefixes` is the segment that a position's own goes on from and also sees, 0 for none;
    positions go on there too, and only a model that `sees_prefixes` may get them. Under a flash implementation the rows come back flat, [1, rows · length]; `logits_at`
    takes flat positions either way. Raises ModelError where the model cannot keep segments apart.
    """
    if prompted(model) is not None:  # it lays its own tokens between these
        rows = {"input_ids": tokens, "segments": segments, "positions": positions, "prefixes": prefixes}
        return {**rows, "use_cache": False}
    spans = {"spans": spans_of(segments, prefixes)} if attends_by_segment(model) else {}
    if _one_segment_a_row(segments):
        counted = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        return {"input_ids": tokens, "position_ids": counted, "use_cache": False, **spans}
    config = text_config(model)
    _refuse_recurrent(config)
    if str(config._attn_implementation).startswith("flash"):
        flat = {"input_ids": tokens.reshape(1, -1), "position_ids": positions.reshape(1, -1)}
        return {**flat, "use_cache": False}
    inputs: dict[str, Any] = {"input_ids": tokens, "position_ids": positions, "use_cache": False, **spans}
    if not has_windows(config):
        inputs["attention_mask"] = isolation_mask(segments, _dtype(model), prefixes=prefixes)
    return inputs


def sees_prefixes(model: Any) -> bool:
    """Whether a segment can go on from another: attention by an explicit mask, in every layer over the whole past, and no
    adapter that looks for an invocation in each sequence."""
    if invocation_of(model) is not None:
        return False
    config = text_config(model)
    flash = str(config._attn_implementation).startswith("flash")
    return not (flash or has_windows(config) or is_recurrent(config))


def isolation_mask(segments: torch.Tensor, dtype: torch.dtype, *, prefixes: torch.Tensor | None = None) -> torch.Tensor:
    """Additive mask [rows, 1, length, length]: 0 where query i may see key j, the least number of `dtype` elsewhere.

    i sees j when j ≤ i and both lie in the same segment, or j in the one that i's goes on from. Padding (segment 0)
    sees padding, so that no row of the softmax is empty.
    """
    length = segments.shape[1]
    same = segments[:, :, None] == segments[:, None, :]
    if prefixes is not None:
        same |= (prefixes[:, :, None] == segments[:, None, :]) & (prefixes[:, :, None] > 0)
    causal = torch.ones(length, length, dtype=torch.bool, device=segments.device).tril()
    hidden = ~(same & causal)
    mask = torch.zeros(hidden.shape, dtype=dtype, device=segments.device)
    return mask.masked_fill_(hidden, torch.finfo(dtype).min)[:, None]


def has_windows(config: Any) -> bool:
    """Whether some layer sees less than the whole past (a sliding window or chunks)."""
    layer_types = getattr(config, "layer_types", None)
    if layer_types:
        return any(kind != FULL for kind in layer_types)
    sliding = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    return bool(sliding or getattr(config, "attention_chunk_size", None))


def is_recurrent(config: Any) -> bool:
    """Whether some layer looks past a mask (it carries a state along the row), so that packing is impossible."""
    named = any(name in str(config.model_type) for name in ("mamba", "rwkv", "xlstm", "recurrent"))
    return named or bool(_unmasked_layers(config))


def _unmasked_layers(config: Any) -> set[str]:
    return set(getattr(config, "layer_types", None) or ()) - set(MASKED_LAYERS)


def _refuse_recurrent(config: Any) -> None:
    if is_recurrent(config):
        kinds = _unmasked_layers(config)
        found = f" ({', '.join(sorted(kinds))})" if kinds else ""
        raise ModelError(
            f"layers of a '{config.model_type}' model{found} look past a mask: packed samples would see each other",
            where="data.packing",
            next_step="set data.packing=false",
        )


def _one_segment_a_row(segments: torch.Tensor) -> bool:
    """True where each row is its first segment and then padding; that one comparison waits for a GPU."""
    return bool(((segments == segments[:, :1]) | (segments == 0)).all())


def _dtype(model: Any) -> torch.dtype:
    return next(p.dtype for p in base_of(model).parameters() if p.dtype.is_floating_point)
