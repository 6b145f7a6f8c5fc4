"""LoRA on the stacked weights of a mixture's experts, and with trained tokens: trained, saved, opened again, merged."""

from __future__ import annotations

import json

import pytest
import torch
from peft import PeftModel

from cairn.adapters.attach import attach_saved
from cairn.adapters.beside import read_beside
from cairn.adapters.files import read_lora
from cairn.adapters.linear_change import as_changes, changed
from cairn.adapters.methods.lora import Lora
from cairn.adapters.specimens import build_specimen, probe_tokens
from cairn.errors import AdapterError
from cairn.models.experts import stacked_weights

pytestmark = pytest.mark.slow

CASES = {
    "experts beside attention": ("mixtral", {"parameters": "experts"}),
    "one weight in one layer": ("mixtral", {"parameters": ["mlp.experts.down_proj"], "layers": [1]}),
    "tokens": ("llama", {"tokens": [64, 70]}),
    "tokens under one tied weight": ("gpt2", {"tokens": [64, 70]}),
    "all of it": ("mixtral", {"parameters": "experts", "tokens": [64], "use_rslora": True}),
}


def trained(architecture: str, config: dict):
    method = Lora(Lora.Config.parse({"rank": 4, **config}))
    base = build_specimen(architecture)
    assert list(method.problems(base)) == []
    torch.manual_seed(1)
    model = method.attach(base)
    mine = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(mine, lr=3e-3)
    for _ in range(3):
        optimizer.zero_grad()
        model.train()(input_ids=probe_tokens(), labels=probe_tokens()).loss.backward()
        optimizer.step()
    assert all(parameter.grad is not None for parameter in mine)
    return method, model


@torch.no_grad()
def logits(model) -> torch.Tensor:
    return model.eval()(input_ids=probe_tokens()).logits


@pytest.mark.parametrize("case", CASES)
def test_trained_it_is_saved_opened_gone_on_from_and_merged(case, tmp_path):
    architecture, config = CASES[case]
    method, model = trained(architecture, config)
    found = logits(model)
    assert float((found - logits(build_specimen(architecture))).abs().max()) > 1e-3
    method.save(model, tmp_path)
    again = attach_saved(build_specimen(architecture), tmp_path)
    torch.testing.assert_close(logits(again), found, rtol=0, atol=0)
    assert not any(parameter.requires_grad for parameter in again.parameters())
    on = method.go_on(build_specimen(architecture), tmp_path)
    assert {n for n, p in on.named_parameters() if p.requires_grad} == {
        n for n, p in model.named_parameters() if p.requires_grad
    }
    peft = PeftModel.from_pretrained(build_specimen(architecture), str(tmp_path))
    torch.testing.assert_close(logits(peft), found, rtol=0, atol=0)
    merged = again.merge_and_unload(safe_merge=True)
    torch.testing.assert_close(logits(merged), found, rtol=1e-4, atol=1e-4)
    frozen = {
        name: value
        for name, value in build_specimen(architecture).state_dict().items()
        if "norm" in name or "ln_" in name
    }
    assert frozen
    assert all(torch.equal(merged.state_dict()[name], value) for name, value in frozen.items())


def test_each_expert_has_its_own_update_of_the_rank():
    _, model = trained("mixtral", {"parameters": "experts"})
    wrapper = model.get_submodule("base_model.model.model.layers.0.mlp.experts")
    update = wrapper.get_delta_weight("default").detach()
    assert [int(torch.linalg.matrix_rank(one, rtol=1e-5)) for one in update] == [4] * 4
    assert len({float(one.norm()) for one in update}) == 4
    assert set(stacked_weights(build_specimen("mixtral"))) == {
        f"model.layers.{layer}.mlp.experts.{name}" for layer in (0, 1) for name in ("gate_up_proj", "down_proj")
    }


@pytest.mark.parametrize("case", ["experts beside attention", "tokens"])
def test_where_a_plain_lora_is_wanted_it_is_refused(case, tmp_path):
    method, model = trained(*CASES[case])
    method.save(model, tmp_path)
    with pytest.raises(AdapterError, match="is not plain LoRA"):
        read_lora(tmp_path)


@pytest.mark.parametrize("case", ["tokens", "tokens under one tied weight"])
def test_with_tokens_it_answers_beside_others(case, tmp_path):
    method, model = trained(*CASES[case])
    method.save(model, tmp_path)
    base = build_specimen(CASES[case][0])
    served = changed(base, as_changes(read_beside(tmp_path, base)))
    torch.testing.assert_close(logits(served), logits(model), rtol=1e-4, atol=1e-4)


def test_with_experts_it_is_refused_beside_others(tmp_path):
    method, model = trained(*CASES["experts beside attention"])
    method.save(model, tmp_path)
    with pytest.raises(AdapterError, match="cannot be served beside others"):
        read_beside(tmp_path, build_specimen("mixtral"))


def test_names_and_neighbours_that_do_not_fit_are_said_at_once():
    def problems(architecture: str, **config: object) -> str:
        return "\n".join(Lora(Lora.Config.parse(config)).problems(build_specimen(architecture)))

    found = problems("mixtral", rank=65, parameters=["up_proj", "down_proj"], dropout=0.1, tokens=[96, 3, 3])
    for reason in (
        "names 'up_proj'; the model's stacked weights are: down_proj, gate_up_proj",
        "adapter.rank=65 is above the smaller side of model.layers.0.mlp.experts.down_proj",
        "goes with no dropout",
        "adapter.tokens has 96",
        "names a token twice",
    ):
        assert reason in found, reason
    assert "stacked weights are: none" in problems("llama", parameters="experts")
    assert "goes with no dropout" in problems("mixtral", parameters="experts", init="pissa")


def test_another_files_names_of_weights_lead_nowhere(tmp_path):
    method, model = trained(*CASES["experts beside attention"])
    method.save(model, tmp_path)
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"target_parameters": ["model.norm.weight"]}))
    base = build_specimen("mixtral")
    before = list(base.state_dict())
    with pytest.raises(AdapterError):
        attach_saved(base, tmp_path)
    assert list(base.state_dict()) == before
