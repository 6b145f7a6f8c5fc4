"""AdaLoRA's files: ours are plain LoRAs, PEFT's own are read with the ranks that they note, and with distrust."""

from __future__ import annotations

import json

import pytest
import torch
from peft import AdaLoraConfig, get_peft_model

from cairn.adapters.attach import attach_saved
from cairn.adapters.files import read_lora, save_peft
from cairn.adapters.specimens import build_specimen, probe_tokens
from cairn.errors import AdapterError
from cairn.plugins import METHODS

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_it_is_saved_as_a_lora_of_the_components_that_are_left(architecture, tmp_path):
    method = METHODS.load("adalora")
    adalora = method(method.Config.parse({"rank": 3, "initial_rank": 6}))
    torch.manual_seed(1)
    adapted = adalora.attach(build_specimen(architecture))
    values = [parameter for name, parameter in adapted.named_parameters() if "lora_E" in name]
    with torch.no_grad():
        for i, value in enumerate(values):
            value.copy_(torch.randn_like(value))
            value[: i % 7] = 0
        wanted = adapted(input_ids=probe_tokens()).logits
        adalora.save(adapted, tmp_path)
        found = attach_saved(build_specimen(architecture), tmp_path)(input_ids=probe_tokens()).logits
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    ranks = [a.shape[0] for a, _ in read_lora(tmp_path).layers.values()]
    assert sorted(ranks) == sorted(6 - i % 7 for i in range(len(values)) if i % 7 < 6)


def _saved_by_peft(folder):
    torch.manual_seed(1)
    config = AdaLoraConfig(
        task_type="CAUSAL_LM", target_modules=["q_proj", "down_proj"], init_r=6, target_r=3, total_step=9
    )
    adapted = get_peft_model(build_specimen("llama"), config)
    generator = torch.Generator().manual_seed(1)
    for step in range(1, 10):
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
                parameter.grad = torch.randn(parameter.shape, generator=generator)
        adapted.base_model.update_and_allocate(step)
    adapted.eval()
    with torch.no_grad():
        logits = adapted(input_ids=probe_tokens()).logits
    save_peft(adapted, folder)
    return logits


def test_one_that_peft_saved_is_read_with_its_ranks(tmp_path):
    wanted = _saved_by_peft(tmp_path)
    adapted = attach_saved(build_specimen("llama"), tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(adapted(input_ids=probe_tokens()).logits, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda pattern: pattern | {next(iter(pattern)): [True]}, "1 components of"),
        (lambda pattern: pattern | {next(iter(pattern)): "[True]"}, "rank_pattern says"),
        (lambda pattern: pattern | {"__class__.lora_E": [True] * 6}, "'__class__.lora_E'"),
        (lambda pattern: pattern | {next(iter(pattern)): [True] * 6}, "shape|lora_"),
    ],
)
def test_a_pattern_that_does_not_fit_is_refused(change, reason, tmp_path):
    _saved_by_peft(tmp_path)
    path = tmp_path / "adapter_config.json"
    config = json.loads(path.read_text())
    pattern = config["rank_pattern"]
    shrunk = next(key for key, kept in pattern.items() if not all(kept))
    pattern = {shrunk: pattern.pop(shrunk), **pattern}
    path.write_text(json.dumps(config | {"rank_pattern": change(pattern)}))
    base = build_specimen("llama")
    before = list(base.state_dict())
    with pytest.raises(AdapterError, match=reason):
        attach_saved(base, tmp_path)
    assert list(base.state_dict()) == before
