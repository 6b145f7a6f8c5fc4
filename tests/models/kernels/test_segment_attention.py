"""Attention by segment is attention by the mask, with its gradients."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tests.models.families import build_family

from cairn.models.attention import forward_inputs
from cairn.models.kernels import segment_attention
from cairn.models.kernels.segment_attention import Span, spans_of, use_segment_attention

pytestmark = pytest.mark.unit

TOKENS = torch.arange(28).reshape(2, 14) * 7 % 100
SEGMENTS = torch.tensor([[1] * 4 + [2] * 3 + [3] * 5 + [4] * 2, [1] * 9 + [2] * 2 + [0] * 3])
POSITIONS = torch.tensor([[*range(4), *range(4, 7), *range(4, 9), 0, 1], [*range(9), 0, 1, 0, 0, 0]])
PREFIXES = torch.tensor([[0] * 4 + [1] * 8 + [0] * 2, [0] * 14])
ALONE = torch.ones(2, 14, dtype=torch.long)


def run(model: Any, segments: torch.Tensor, prefixes: torch.Tensor | None) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Logits where there is no padding, and gradients."""
    inputs = forward_inputs(TOKENS, segments, POSITIONS, model, prefixes=prefixes)
    logits = model(**inputs).logits[segments > 0]
    logits.square().sum().backward()
    return logits, [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3", "gpt_neox", "qwen3_moe"])
@pytest.mark.parametrize(
    ("segments", "prefixes"),
    [(SEGMENTS, PREFIXES), (SEGMENTS, None), (ALONE, None)],
    ids=["prefixes", "packed", "one a row"],
)
def test_equal_to_the_mask(family: str, segments: torch.Tensor, prefixes: torch.Tensor | None) -> None:
    masked = build_family(family, attn_implementation="sdpa")
    changed = copy.deepcopy(masked)
    assert use_segment_attention(changed)
    (wanted, theirs), (found, mine) = run(masked, segments, prefixes), run(changed, segments, prefixes)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    for gradient, other in zip(mine, theirs, strict=True):
        if other is not None:
            assert torch.linalg.norm(gradient - other) <= 1e-5 * torch.linalg.norm(other) + 1e-7


def test_the_kernel_is_what_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    plain = segment_attention.segment_attention
    monkeypatch.setattr(
        segment_attention,
        "segment_attention",
        lambda *given, **named: (seen.append(given[3]), plain(*given, **named))[1],
    )
    model = build_family("llama", attn_implementation="sdpa")
    assert use_segment_attention(model)
    run(model, SEGMENTS, PREFIXES)
    assert seen == [spans_of(SEGMENTS, PREFIXES)] * 2
    model(input_ids=TOKENS)
    assert len(seen) == 2  # without spans it is sdpa


def test_in_bf16_within_its_tolerance() -> None:
    masked = build_family("llama", attn_implementation="sdpa").to(torch.bfloat16)
    changed = copy.deepcopy(masked)
    use_segment_attention(changed)
    wanted, found = (run(model, SEGMENTS, None)[0].float() for model in (masked, changed))
    assert torch.linalg.norm(found - wanted) <= 2e-2 * torch.linalg.norm(wanted)


def test_spans() -> None:
    assert spans_of(SEGMENTS, PREFIXES) == (
        (Span(0, 4), Span(4, 7, 0, 4), Span(7, 12, 0, 4), Span(12, 14)),
        (Span(0, 9), Span(9, 11)),
    )
    assert spans_of(torch.zeros(1, 3, dtype=torch.long)) == ((),)


def test_a_model_in_eager_stays() -> None:
    model = build_family("llama")
    assert not use_segment_attention(model)
    assert "spans" not in forward_inputs(TOKENS, SEGMENTS, POSITIONS, model)
