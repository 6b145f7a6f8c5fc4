"""Attention segment by segment on a CPU, where one explicit mask over a packed row computes what it then hides.

Each segment is a causal call of torch's own kernel over its positions alone; one that goes on from another sees that
one's keys before its own. Padding is not computed. transformers calls it by the name that `use_segment_attention` sets;
the spans come with the model's inputs (`cairn.models.attention`), and without them it is transformers' sdpa. A CPU
without bf16 products computes in fp32.

Cost on SmolLM2, 512 positions, one thread with AVX2, forward and backward of a layer: 50 ms with a mask; 50, 28, 23 and
20 ms for one to four segments.
"""

from __future__ import annotations

import inspect
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

from cairn.models.kernels.measure import packed_dtype
from cairn.models.unwrap import base_of

NAME = "cairn_segments"


class Span(NamedTuple):
    """The positions from `start` to `end` of a row, which also see those from `prefix_start` to `prefix_end`."""

    start: int
    end: int
    prefix_start: int = 0
    prefix_end: int = 0


Spans = tuple[tuple[Span, ...], ...]
"""The spans of each row, in order; what follows the last is padding."""


def spans_of(segments: torch.Tensor, prefixes: torch.Tensor | None = None) -> Spans:
    """Of `segments` and `prefixes` int64 [rows, length], as `cairn.models.attention` describes them."""
    found = []
    for row, numbers in enumerate(segments.tolist()):
        bounds, start = {}, 0
        for number, same in groupby(numbers):
            end = start + len(list(same))
            if number:
                bounds[number] = (start, end)
            start = end
        before = [0] * len(numbers) if prefixes is None else prefixes[row].tolist()
        found.append(tuple(Span(*own, *bounds.get(before[own[0]], (0, 0))) for own in bounds.values()))
    return tuple(found)


def attends_by_segment(model: Any) -> bool:
    """Whether `use_segment_attention` changed it."""
    config = getattr(base_of(model), "config", None)
    return getattr(config, "_attn_implementation", None) == NAME


def use_segment_attention(model: Any) -> bool:
    """Let `model` (or the one in its wrapper) attend so, in place; False where it stays as it is.

    It must see its whole past in every layer (`cairn.models.attention.sees_prefixes`). It stays as it is on another
    device than a CPU, with another attention than sdpa, and where it takes no further arguments.
    """
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    base = base_of(model)
    takes_more = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(base.forward).parameters.values())
    plain = base.config._attn_implementation == "sdpa" and base._can_set_attn_implementation()
    if not (plain and takes_more and all(parameter.device.type == "cpu" for parameter in base.parameters())):
        return False

    def attend(
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        spans: Spans | None = None,
        **options: Any,
    ) -> Any:
        if spans is None:
            return sdpa_attention_forward(
                module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
            )
        return segment_attention(query, key, value, spans, dropout=dropout, scaling=scaling), None

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    base.set_attn_implementation(NAME)
    return True


def segment_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, spans: Spans, *, dropout: float, scaling: float | None
) -> torch.Tensor:
    """[rows, length, heads, size] of query [rows, heads, length, size], key and value [rows, groups, length, size]."""
    dtype, size = packed_dtype(query) or query.dtype, query.shape[2]
    heads = query.shape[1] // key.shape[1]
    q, k, v = (part.to(dtype) for part in (query, key, value))
    k, v = (part.repeat_interleave(heads, 1) if heads > 1 else part for part in (k, v))
    rows = []
    for row, its in enumerate(spans):
        one = slice(row, row + 1)
        parts = [_attend(q[one], k[one], v[one], span, dropout=dropout, scaling=scaling) for span in its]
        filled = its[-1].end if its else 0
        parts.append(q.new_zeros(1, q.shape[1], size - filled, v.shape[-1]))
        rows.append(torch.cat(parts, 2))
    return torch.cat(rows).to(query.dtype).transpose(1, 2).contiguous()


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, span: Span, **options: Any) -> torch.Tensor:
    own, prefix = slice(span.start, span.end), slice(span.prefix_start, span.prefix_end)
    options = {"dropout_p": options["dropout"], "scale": options["scaling"]}
    before = span.prefix_end - span.prefix_start
    if not before:
        return F.scaled_dot_product_attention(q[:, :, own], k[:, :, own], v[:, :, own], is_causal=True, **options)
    seen = torch.ones(span.end - span.start, before + span.end - span.start, dtype=torch.bool).tril(before)
    keys, values = (torch.cat([part[:, :, prefix], part[:, :, own]], 2) for part in (k, v))
    return F.scaled_dot_product_attention(q[:, :, own], keys, values, attn_mask=seen, **options)
