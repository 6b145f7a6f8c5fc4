"""What is computed is written so that PEFT and we open it: every rank, strength and place, on any family."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.adapters.updates import SHAPES, delta, lora, relative
from tests.models.families import build_family
from tests.tiny import build_model

from cairn.adapters.attach import attach_weights
from cairn.adapters.combine import combine
from cairn.adapters.files import read_lora
from cairn.adapters.plain import plain_lora, write_lora

pytestmark = pytest.mark.unit

TOKENS = torch.arange(20).reshape(2, 10)
Q, V, DOWN = SHAPES


@torch.no_grad()
def logits(model: torch.nn.Module) -> torch.Tensor:
    found: torch.Tensor = model(input_ids=TOKENS).logits
    return found


def test_what_is_written_reads_back_the_same(tmp_path: Path) -> None:
    weights = combine((lora(1, {Q: 4, V: 2}, scaling=2.0), lora(2, {Q: 3, DOWN: 8}, scaling=0.3)), (0.7, -0.3)).weights
    again = read_lora(write_lora(weights, tmp_path / "out", base="somewhere"))
    assert again.scaling == pytest.approx(weights.scaling)
    assert all(torch.equal(again.layers[path][i], weights.layers[path][i]) for path in SHAPES for i in (0, 1))
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "somewhere"
    assert config["task_type"] == "CAUSAL_LM"
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}


@pytest.mark.parametrize("scaling", [1.0, 0.3, 5.657])
def test_peft_opens_it_with_every_rank_and_strength(scaling: float, tmp_path: Path) -> None:
    from peft import PeftModel

    weights = combine((lora(1, {Q: 4, V: 2}, scaling=scaling), lora(2, {Q: 3, DOWN: 8})), (0.7, 0.3)).weights
    scaled = plain_lora(weights.layers, scaling={Q: 1.0, V: scaling, DOWN: 2.0})
    for number, one in enumerate((weights, scaled)):
        folder = write_lora(one, tmp_path / str(number), base="m")
        opened = PeftModel.from_pretrained(build_model(), str(folder)).eval()
        torch.testing.assert_close(logits(opened), logits(attach_weights(build_model(), one)), rtol=1e-5, atol=1e-5)
        for path in SHAPES:
            found = opened.get_base_model().get_submodule(path).get_delta_weight("default")
            assert relative(found.double(), delta(one, path)) < 1e-6


def test_weights_kept_the_other_way_round_are_told_to_peft(tmp_path: Path) -> None:
    from peft import PeftModel

    draw = torch.Generator().manual_seed(0)
    path = "transformer.h.0.attn.c_attn"
    layers = {path: (torch.randn(3, 32, generator=draw), torch.randn(96, 3, generator=draw))}
    folder = write_lora(plain_lora(layers, transposed=True), tmp_path / "gpt2", base="gpt2")
    opened = PeftModel.from_pretrained(build_family("gpt2"), str(folder)).eval()
    expected = logits(attach_weights(build_family("gpt2"), read_lora(folder)))
    torch.testing.assert_close(logits(opened), expected, rtol=1e-5, atol=1e-5)
    assert read_lora(folder).config["fan_in_fan_out"] is True


def test_one_that_scores_keeps_its_head(tmp_path: Path) -> None:
    weights = lora(1, head=True)
    again = read_lora(write_lora(weights, tmp_path / "judge", base="m"), scores=True)
    assert again.head is not None
    assert weights.head is not None
    assert torch.equal(again.head, weights.head)
