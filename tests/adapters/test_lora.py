"""LoRA on several families: what trains, what is saved, what is attached again, merged and unmerged."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tests.models.families import build_family

from cairn.adapters.attach import attach_saved
from cairn.adapters.files import read_lora, save_peft
from cairn.adapters.merge import merge, merged, restore
from cairn.adapters.methods.full import Full
from cairn.adapters.methods.lora import Lora
from cairn.errors import AdapterError
from cairn.models.linears import find_targets

pytestmark = pytest.mark.slow

FAMILIES = ("llama", "gpt2", "gemma2", "qwen3", "gpt_neox")
TOKENS = torch.arange(20).reshape(2, 10)


def trained(family: str, *, dtype: torch.dtype = torch.float32, **config: object):
    """An adapted model whose B matrices are no longer zero."""
    model = Lora(Lora.Config.parse({"rank": 4, **config})).attach(build_family(family).to(dtype))
    generator = torch.Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data = (0.1 * torch.randn(parameter.shape, generator=generator)).to(parameter.dtype)
    return model.eval()


@torch.no_grad()
def logits(model) -> torch.Tensor:
    return model(input_ids=TOKENS).logits


@pytest.mark.parametrize("family", FAMILIES)
def test_exactly_a_and_b_of_every_target_train(family):
    base = build_family(family)
    targets = find_targets(base, "auto")
    model = Lora(Lora.Config(rank=2)).attach(base)
    names = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert names == {f"base_model.model.{path}.lora_{part}.default.weight" for path in targets for part in "AB"}
    torch.testing.assert_close(logits(model), logits(build_family(family)), rtol=0, atol=0)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("config", [{}, {"use_rslora": True, "alpha": 3, "targets": "attention"}])
def test_saved_and_attached_again_the_logits_are_equal(family, config, tmp_path):
    model = trained(family, **config)
    save_peft(model, tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    again = attach_saved(build_family(family), tmp_path)
    torch.testing.assert_close(logits(again), logits(model), rtol=0, atol=0)
    assert not any(parameter.requires_grad for parameter in again.parameters())
    assert float((logits(again) - logits(build_family(family))).abs().max()) > 1e-3


def test_peft_itself_opens_what_we_save(tmp_path):
    from peft import PeftModel

    model = trained("llama")
    save_peft(model, tmp_path)
    opened = PeftModel.from_pretrained(build_family("llama"), str(tmp_path)).eval()
    torch.testing.assert_close(logits(opened), logits(model), rtol=0, atol=0)


def test_attached_to_go_on_training_only_the_adapter_trains(tmp_path):
    save_peft(trained("llama"), tmp_path)
    again = Lora().go_on(build_family("llama"), tmp_path)
    assert all(("lora_" in name) == parameter.requires_grad for name, parameter in again.named_parameters())


def test_unequal_ranks_and_strengths_survive(tmp_path):
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=4,
        lora_alpha=8,
        target_modules=["q_proj", "down_proj"],
        rank_pattern={"layers.1.self_attn.q_proj": 2},
        alpha_pattern={"down_proj": 3},
        init_lora_weights=False,
    )
    model = get_peft_model(build_family("llama"), config).eval()
    save_peft(model, tmp_path)
    torch.testing.assert_close(logits(attach_saved(build_family("llama"), tmp_path)), logits(model), rtol=0, atol=0)


def test_another_base_is_refused_and_left_as_it_was(tmp_path):
    save_peft(trained("llama"), tmp_path)
    other = build_family("llama", hidden_size=48, num_attention_heads=6)
    before = list(other.state_dict())
    with pytest.raises(AdapterError, match=r"(?s)does not fit the model.*trained on"):
        attach_saved(other, tmp_path)
    assert list(other.state_dict()) == before


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_merged_answers_as_base_plus_adapter_and_unmerges_bit_for_bit(family, dtype, tmp_path):
    model = trained(family, dtype=dtype)
    save_peft(model, tmp_path)
    weights = read_lora(tmp_path)
    base = build_family(family).to(dtype)
    before = copy.deepcopy(base.state_dict())
    for _ in range(5):
        with merged(base, weights):
            folded = logits(base)
    tolerance = 1e-4 if dtype == torch.float32 else 2e-2
    wanted = logits(model)
    assert float((folded - wanted).float().norm() / wanted.float().norm()) < tolerance
    assert all(torch.equal(value, before[name]) for name, value in base.state_dict().items())
    kept = merge(base, weights)
    assert any(not torch.equal(value, before[name]) for name, value in base.state_dict().items())
    restore(base, kept)
    assert all(torch.equal(value, before[name]) for name, value in base.state_dict().items())


def test_alpha_is_twice_the_rank_unless_said():
    assert Lora(Lora.Config(rank=4)).attach(build_family("llama")).peft_config["default"].lora_alpha == 8
    assert Lora(Lora.Config(rank=4, alpha=1.0)).attach(build_family("llama")).peft_config["default"].lora_alpha == 1


def test_full_training_trains_all_and_saves_a_model(tmp_path):
    from transformers import AutoModelForCausalLM

    model = Full().attach(build_family("llama").requires_grad_(False))
    assert all(parameter.requires_grad for parameter in model.parameters())
    Full().save(model, tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager").eval()
    torch.testing.assert_close(logits(again), logits(model), rtol=0, atol=0)


def test_an_adapter_that_peft_saved_without_a_task_type_is_read(tmp_path):
    model = get_peft_model(build_family("llama"), LoraConfig(r=4, target_modules=["q_proj"]))
    save_peft(model, tmp_path)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["auto_mapping"] is not None
    assert set(read_lora(tmp_path).layers) == {f"model.layers.{i}.self_attn.q_proj" for i in range(2)}
