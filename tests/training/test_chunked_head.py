"""The loss in chunks under DeepSpeed, whose ZeRO 3 gathers the head's weight for its forward and backward pass alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.models.test_head import assert_equal, both
from tests.training.engines import check_two_steps, make, steps_of

from cairn.models import head
from cairn.stages.sft import Sft

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("group")]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two positions of 260 logits at a time."""
    monkeypatch.setattr(head, "CHUNK_LOGITS", 520)


@pytest.mark.parametrize("zero_stage", [0, 3])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_two_steps_equal_plain_torch(precision: str, zero_stage: int) -> None:
    check_two_steps(precision, zero_stage, accumulation=2)


@pytest.mark.parametrize("zero_stage", [0, 3])
def test_chunks_change_nothing_that_is_trained(zero_stage: int, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = steps_of(1, 3)
    chunked = make("fp32", zero_stage)
    losses = [chunked.step(step, Sft()).loss.value for step in steps]
    assert head._ends_in_head[chunked.model] is True
    monkeypatch.setattr(head, "_head_is_last", lambda policy, inputs: False)
    whole = make("fp32", zero_stage)
    assert losses == pytest.approx([whole.step(step, Sft()).loss.value for step in steps], rel=1e-5)


def test_a_head_under_lora() -> None:
    from peft import LoraConfig, get_peft_model
    from tests.models.families import build_family

    config = LoraConfig(r=2, target_modules=["q_proj", "lm_head"], task_type="CAUSAL_LM")
    adapted: Any = get_peft_model(build_family("llama"), config)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    mine, theirs, seen = both(adapted)
    assert_equal(mine, theirs)
    assert max(seen) == 5
