"""Every field of PEFT's LoraConfig is trained here, has no effect, or is refused by name with a reason."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from peft import LoraConfig, get_peft_model

from cairn.adapters.attach import attach_saved
from cairn.adapters.files import read_lora
from cairn.adapters.methods.lora import Lora
from cairn.adapters.peft_config import ALORA, INERT, LEFT_OUT, READ, TAKEN_OUT
from cairn.adapters.specimens import build_specimen
from cairn.adapters.trial import difference, logits_of
from cairn.errors import AdapterError

pytestmark = pytest.mark.slow

OFFERED = ("use_dora", "target_parameters", "trainable_token_indices")
"""Read as variants of LoRA, beside what a plain one reads."""
ELSEWHERE = ("auto_mapping", "runtime_config")
"""The class of the base, held against transformers' name; and what PEFT never saves."""
GIVEN: dict[str, Any] = {
    "alora_invocation_tokens": [5, 6],
    "arrow_config": {"top_k": 2},
    "corda_config": {"corda_method": "kpm"},
    "ensure_weight_tying": True,
    "kasa_config": {"beta": 1e-4},
    "layer_replication": [[0, 2], [1, 2]],
    "loftq_config": {"loftq_bits": 4},
    "lora_bias": True,
    "lora_ga_config": {"direction": "ArB2r"},
    "megatron_config": {"hidden": 1},
    "monteclora_config": {"sample_scaler": 1e-4},
    "use_bdlora": {"nblocks": 2},
    "use_qalora": True,
    "velora_config": {"num_groups": 4},
}
"""Values as PEFT would save them."""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    lora = Lora(Lora.Config(rank=2))
    lora.save(lora.attach(build_specimen("llama")), folder)
    return folder


def changed(plain: Path, folder: Path, **change: Any) -> Path:
    """`plain` in `folder` with other values in its config."""
    config = json.loads((plain / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | change))
    (folder / "adapter_model.safetensors").write_bytes((plain / "adapter_model.safetensors").read_bytes())
    return folder


def test_every_field_of_the_installed_peft_is_known_here():
    fields = {field.name for field in dataclasses.fields(LoraConfig)}
    assert fields - {*READ, *INERT, *OFFERED, *ELSEWHERE} == set(LEFT_OUT)
    assert set(GIVEN) == set(LEFT_OUT)


@pytest.mark.parametrize("field", sorted(set(LEFT_OUT) - {ALORA}))
@pytest.mark.parametrize("beside", [{}, {"use_dora": True}], ids=["lora", "dora"])
def test_what_is_left_out_is_refused_with_its_reason(field, beside, plain, tmp_path):
    base = build_specimen("llama")
    before = list(base.state_dict())
    with pytest.raises(AdapterError) as refused:
        attach_saved(base, changed(plain, tmp_path, **beside, **{field: GIVEN[field]}))
    assert f"the field {field} = " in str(refused.value)
    assert LEFT_OUT[field] in str(refused.value)
    assert list(base.state_dict()) == before


def test_why_layers_are_not_replicated():
    """What the pinned stack makes of it; when this fails, it can be offered."""
    config = {"task_type": "CAUSAL_LM", "layer_replication": [[0, 2], [0, 2]], "target_modules": ["q_proj", "v_proj"]}
    adapted = get_peft_model(build_specimen("llama"), LoraConfig(**config, init_lora_weights=False)).eval()
    before = logits_of(adapted)
    assert difference(logits_of(adapted.merge_and_unload()), before) > 1e-2
    with pytest.raises(IndexError):
        logits_of(get_peft_model(build_specimen("qwen3"), LoraConfig(**config)))


def test_one_that_waits_is_of_another_method(plain, tmp_path):
    base = build_specimen("llama")
    with pytest.raises(AdapterError, match="the field use_dora"):
        attach_saved(base, changed(plain, tmp_path, use_dora=True, **{ALORA: [5, 6]}))
    with pytest.raises(AdapterError, match=LEFT_OUT[ALORA]):
        read_lora(changed(plain, tmp_path, **{ALORA: [5, 6]}))
    assert attach_saved(base, tmp_path).invocation.tokens == (5, 6)


@pytest.mark.parametrize("init", ["corda", "lora_ga", "pissa", "olora", "loftq"])
def test_a_beginning_taken_out_of_the_base_is_refused(init, plain, tmp_path):
    with pytest.raises(AdapterError, match="which changes the base"):
        attach_saved(build_specimen("llama"), changed(plain, tmp_path, init_lora_weights=init))
    assert "convert it" in TAKEN_OUT


@pytest.mark.parametrize(
    "change", [{"eva_config": {"rho": 2.0}, "init_lora_weights": "eva"}, {"init_lora_weights": "mica"}], ids=str
)
def test_a_beginning_beside_the_base_is_read(change, plain, tmp_path):
    adapted = attach_saved(build_specimen("llama"), changed(plain, tmp_path, **change))
    assert adapted.peft_config["default"].r == 2


@pytest.mark.parametrize("key", ["(a+)+$", "", "q_proj|v_proj"])
def test_no_pattern_is_run_at_a_files_word(key, plain, tmp_path):
    with pytest.raises(AdapterError, match="regular expressions are not run"):
        attach_saved(build_specimen("llama"), changed(plain, tmp_path, use_dora=True, rank_pattern={key: 4}))
