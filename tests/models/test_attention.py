"""Packed samples never see each other, in any family and under any attention implementation on a CPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from tests.models.families import FAMILIES, SDPA_MISSING, build_family

from cairn.errors import ModelError
from cairn.models.attention import forward_inputs, has_windows, isolation_mask
from cairn.models.forward import keeps_logits, logits_at

pytestmark = pytest.mark.slow

SEGMENTS = torch.tensor([[1] * 5 + [2] * 7 + [3] + [4] * 3, [1] * 6 + [2] * 6 + [0] * 4])
POSITIONS = torch.tensor([[*range(5), *range(7), 0, *range(3)], [*range(6), *range(6), 0, 0, 0, 0]])
TOKENS = torch.randint(0, 100, (2, 16), generator=torch.Generator().manual_seed(1))
CASES = [(f, a) for f in FAMILIES for a in ("eager", "sdpa") if not (a == "sdpa" and f in SDPA_MISSING)]


@torch.no_grad()
def worst_difference(model, *, dtype=torch.float32) -> float:
    """Largest difference of any logit between the packed rows and each sample alone."""
    packed = model(**forward_inputs(TOKENS, SEGMENTS, POSITIONS, model)).logits
    worst = 0.0
    for row in range(len(TOKENS)):
        for segment in range(1, int(SEGMENTS[row].max()) + 1):
            where = (SEGMENTS[row] == segment).nonzero().flatten()
            alone = model(input_ids=TOKENS[row, where][None], use_cache=False).logits[0]
            worst = max(worst, float((packed[row, where] - alone).abs().max() / alone.abs().max()))
    return worst


@pytest.mark.parametrize(("family", "attention"), CASES)
def test_a_packed_sample_answers_as_if_alone(family, attention):
    model = build_family(family, attn_implementation=attention)
    assert model.config._attn_implementation == attention
    assert worst_difference(model) < 1e-5


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_without_isolation_samples_would_see_each_other(family):
    model = build_family(family)
    with torch.no_grad():
        packed = model(**forward_inputs(TOKENS, SEGMENTS, POSITIONS, model)).logits
        leaking = model(input_ids=TOKENS, use_cache=False).logits
    assert float((packed - leaking)[0, 5:].abs().max()) > 1e-2


def test_bf16_packed_rows_agree_within_bf16():
    assert worst_difference(build_family("llama", attn_implementation="sdpa").bfloat16()) < 2e-2


def test_rows_of_one_segment_need_no_mask_and_padding_changes_nothing():
    model = build_family("llama", attn_implementation="sdpa")
    segments = torch.tensor([[1] * 16, [1] * 10 + [0] * 6])
    positions = torch.tensor([[*range(16)], [*range(10)] + [0] * 6])
    inputs = forward_inputs(TOKENS, segments, positions, model)
    assert "attention_mask" not in inputs
    with torch.no_grad():
        padded = model(**inputs).logits[1, :10]
        alone = model(input_ids=TOKENS[1, :10][None]).logits[0]
    torch.testing.assert_close(padded, alone, rtol=1e-5, atol=1e-5)


def test_mask_is_causal_within_a_segment_and_never_empty():
    mask = isolation_mask(torch.tensor([[1, 1, 2, 0, 0]]), torch.float32)
    seen = (mask[0, 0] == 0).int().tolist()
    assert seen == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 1, 1]]


def test_flash_gets_flat_rows_whose_positions_restart():
    model = SimpleNamespace(config=SimpleNamespace(_attn_implementation="flash_attention_2", model_type="llama"))
    inputs = forward_inputs(TOKENS, SEGMENTS, POSITIONS, model)
    assert inputs["input_ids"].shape == (1, 32)
    assert inputs["position_ids"].tolist() == [POSITIONS.reshape(-1).tolist()]
    assert "attention_mask" not in inputs


def test_recurrent_layers_are_refused_when_packed():
    config = SimpleNamespace(_attn_implementation="sdpa", model_type="x", layer_types=["linear_attention"])
    with pytest.raises(ModelError, match=r"data.packing.*linear_attention.*\n.*data.packing=false"):
        forward_inputs(TOKENS, SEGMENTS, POSITIONS, SimpleNamespace(config=config))


def test_windows_are_read_off_the_config():
    windowed = {family for family in FAMILIES if has_windows(build_family(family).config)}
    assert windowed == {"gemma2", "gemma3_text", "mistral", "phi3"}


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_at_are_the_models_own_in_the_asked_order(family):
    model = build_family(family)
    inputs = forward_inputs(TOKENS, SEGMENTS, POSITIONS, model)
    positions = torch.tensor([30, 3, 20, 7])
    with torch.no_grad():
        wanted = model(**inputs).logits.reshape(32, -1)[positions]
        torch.testing.assert_close(logits_at(model, inputs, positions), wanted, rtol=1e-5, atol=1e-5)


def test_logits_at_nothing_still_reach_the_parameters():
    model = build_family("llama")
    inputs = forward_inputs(TOKENS, SEGMENTS, POSITIONS, model)
    logits = logits_at(model, inputs, torch.zeros(0, dtype=torch.long))
    logits.sum().backward()
    assert logits.shape == (0, 100)
    assert all(bool((p.grad == 0).all()) for p in model.parameters() if p.grad is not None)
    assert model.model.embed_tokens.weight.grad is not None


def test_a_model_without_logits_to_keep_is_asked_for_all():
    model = build_family("llama")

    def policy(input_ids, **options):
        assert "logits_to_keep" not in options
        return model(input_ids=input_ids, **options)

    inputs = forward_inputs(TOKENS, SEGMENTS, POSITIONS, model)
    with torch.no_grad():
        wanted = model(**inputs).logits.reshape(32, -1)[[1, 31]]
        torch.testing.assert_close(logits_at(policy, inputs, torch.tensor([1, 31])), wanted)
    assert keeps_logits(model)
    assert not keeps_logits(policy)
