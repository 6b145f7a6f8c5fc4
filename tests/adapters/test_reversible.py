"""Merging a PEFT model of any method is reversible: in bf16, again and again, the base stays bit for bit what it was."""

from __future__ import annotations

import pytest
import torch

from cairn.adapters.attach import attach_saved
from cairn.adapters.merge import merge_adapted, unmerge_adapted
from cairn.adapters.proof import small_values
from cairn.adapters.specimens import build_specimen, probe_tokens
from cairn.errors import AdapterError
from cairn.plugins import METHODS

pytestmark = pytest.mark.unit


def _adapted(name, dtype):
    kind = METHODS.load(name)
    method = kind(kind.Config.parse(small_values(name)))
    torch.manual_seed(1)
    adapted = method.attach(build_specimen("llama").to(dtype)).eval()
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(0.02 * torch.randn_like(parameter))
    return adapted


@torch.no_grad()
def _logits(model):
    return model(input_ids=probe_tokens()).logits.float()


@pytest.mark.parametrize("name", ["lora", "oft", "ia3", "ln_tuning"])
def test_twenty_times_leave_a_bf16_base_as_it_was(name):
    adapted = _adapted(name, torch.bfloat16)
    before = {key: parameter.clone() for key, parameter in adapted.named_parameters()}
    wanted = _logits(adapted)
    for _ in range(20):
        kept = merge_adapted(adapted)
        assert kept
        unmerge_adapted(adapted, kept)
    after = dict(adapted.named_parameters())
    assert list(after) == list(before)
    assert all(torch.equal(after[key], value) for key, value in before.items())
    assert torch.equal(_logits(adapted), wanted)


def test_what_is_merged_answers_as_base_and_adapter(tmp_path):
    adapted = _adapted("oft", torch.float32)
    wanted = _logits(adapted)
    merge_adapted(adapted)
    torch.testing.assert_close(_logits(adapted), wanted, rtol=1e-4, atol=1e-5)
    assert not torch.equal(_logits(adapted), _logits(build_specimen("llama")))


def test_what_changes_no_weight_is_refused(tmp_path):
    method = METHODS.load("lily")
    lily = method(method.Config.parse(small_values("lily")))
    lily.save(lily.attach(build_specimen("llama")), tmp_path)
    with pytest.raises(AdapterError, match="cannot be merged"):
        merge_adapted(attach_saved(build_specimen("llama"), tmp_path))
