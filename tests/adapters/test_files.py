"""A PEFT directory is believed only after every part of it was checked; a hostile one is refused with its reasons."""

from __future__ import annotations

import math
import pickle

import pytest
import torch
from tests.adapters.folders import LAYER, plain_config, plain_tensors, write_adapter
from tests.models.families import build_family

from cairn.adapters.files import read_lora
from cairn.errors import AdapterError

pytestmark = pytest.mark.unit

A, B = (f"base_model.model.{LAYER}.lora_{part}.weight" for part in "AB")


def test_a_plain_adapter_is_read_as_data(tmp_path):
    weights = read_lora(write_adapter(tmp_path), build_family("llama").config)
    assert (weights.rank, weights.alpha, weights.scaling) == (4, 8.0, {LAYER: 2.0})
    torch.testing.assert_close(weights.layers[LAYER][0], plain_tensors()[A])
    torch.testing.assert_close(weights.layers[LAYER][1], plain_tensors()[B])


def test_scaling_follows_rslora_and_patterns(tmp_path):
    config = plain_config(use_rslora=True, alpha_pattern={"self_attn.q_proj": 6}, rank_pattern={LAYER: 4}, r=2)
    assert read_lora(write_adapter(tmp_path, config)).scaling == {LAYER: pytest.approx(6 / math.sqrt(4))}


CONFIGS = {
    "another method": ({"peft_type": "LOHA"}, "peft_type is 'LOHA'"),
    "another task": ({"task_type": "TOKEN_CLS"}, "task_type is 'TOKEN_CLS'"),
    "one that scores": ({"task_type": "SEQ_CLS"}, "it scores and does not speak"),
    "no rank": ({"r": 0}, "r is 0"),
    "a rank of text": ({"r": "4"}, "r is '4'"),
    "no alpha": ({"lora_alpha": 0}, "lora_alpha is 0"),
    "an alpha that is no number": ({"lora_alpha": float("nan")}, "lora_alpha is nan"),
    "biases": ({"bias": "all"}, "bias is 'all'"),
    "DoRA": ({"use_dora": True}, "use_dora = True"),
    "an init that changes the base": ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa'"),
    "a module to import": ({"megatron_config": {"a": 1}}, "megatron_config"),
    "a model to load": ({"auto_mapping": {"parent_library": "os"}}, "auto_mapping"),
    "whole modules": ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
    "an unknown field": ({"evil": "__import__('os')"}, "evil"),
    "a regular expression": ({"rank_pattern": {"(a+)+$": 4}}, "regular expressions are not run"),
    "a rank beyond the tensors'": ({"r": 8}, "has rank 4, the config says 8"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_config_is_refused(case, tmp_path):
    changes, reason = CONFIGS[case]
    with pytest.raises(AdapterError) as caught:
        read_lora(write_adapter(tmp_path, plain_config(**changes)))
    assert reason in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_neutral_fields_of_newer_versions_are_harmless(tmp_path):
    config = plain_config(some_future_field=None, another={}, use_dora=False, lora_bias=False)
    assert read_lora(write_adapter(tmp_path, config)).rank == 4


def changed(**tensors: torch.Tensor | None) -> dict[str, torch.Tensor]:
    merged = {**plain_tensors(), **{{"A": A, "B": B}.get(name, name): value for name, value in tensors.items()}}
    return {name: value for name, value in merged.items() if value is not None}


TENSORS = {
    "NaN": (changed(A=torch.full((4, 32), float("nan"))), "holds NaN or infinity"),
    "infinity": (changed(B=torch.full((32, 4), float("inf"))), "holds NaN or infinity"),
    "no partner": (changed(B=None), "has lora_A and not its partner"),
    "unequal ranks": (changed(A=torch.ones(3, 32)), "lora_A of rank 3, lora_B of 4"),
    "one dimension": (changed(A=torch.ones(32)), "not two dimensions"),
    "whole numbers": (changed(A=torch.ones(4, 32, dtype=torch.int64)), "is I64"),
    "an embedding": (changed(**{"base_model.model.model.embed_tokens.weight": torch.ones(2, 2)}), "is no lora_A"),
    "a magnitude": (changed(**{f"base_model.model.{LAYER}.lora_magnitude_vector": torch.ones(2)}), "is no lora_A"),
    "a path": (changed(**{"base_model.model.../../etc.lora_A.weight": torch.ones(4, 32)}), "is no lora_A"),
    "nothing": ({}, "holds no tensors"),
}


@pytest.mark.parametrize("case", TENSORS)
def test_tensors_are_refused(case, tmp_path):
    tensors, reason = TENSORS[case]
    with pytest.raises(AdapterError) as caught:
        read_lora(write_adapter(tmp_path, tensors=tensors))
    assert reason in str(caught.value)


def test_shapes_and_layers_are_held_against_the_base(tmp_path):
    config = build_family("llama").config
    wide = write_adapter(tmp_path / "wide", tensors=plain_tensors(inputs=48))
    with pytest.raises(AdapterError, match="maps 48 → 32 features, the base's maps 32 → 32"):
        read_lora(wide, config)
    strange = write_adapter(tmp_path / "strange", tensors=plain_tensors(layer="model.layers.9.mlp.up_proj"))
    with pytest.raises(AdapterError, match=r"the base has no linear model\.layers\.9\.mlp\.up_proj"):
        read_lora(strange, config)
    head = write_adapter(tmp_path / "head", tensors=plain_tensors(layer="lm_head", outputs=100))
    with pytest.raises(AdapterError, match="the base has no linear lm_head"):
        read_lora(head, config)


def test_rank_and_size_are_capped(tmp_path, monkeypatch):
    folder = write_adapter(tmp_path, plain_config(r=16), plain_tensors(rank=16))
    with pytest.raises(AdapterError, match="has rank 16, at most 8 is allowed"):
        read_lora(folder, max_rank=8)
    monkeypatch.setattr("cairn.adapters.files.MAX_WEIGHTS_BYTES", 100)
    with pytest.raises(AdapterError, match="at most 100 are read"):
        read_lora(folder)


def test_a_pickle_is_refused_unopened(tmp_path):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("the pickle was opened",))

    write_adapter(tmp_path)
    (tmp_path / "adapter_model.safetensors").unlink()
    (tmp_path / "adapter_model.bin").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(AdapterError, match=r"adapter_model\.bin is a pickle"):
        read_lora(tmp_path)


def test_broken_files_and_links_out_are_refused(tmp_path):
    with pytest.raises(AdapterError, match="there is no such directory"):
        read_lora(tmp_path / "absent")
    folder = write_adapter(tmp_path / "a")
    weights = folder / "adapter_model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(AdapterError, match="cannot be read"):
        read_lora(folder)
    weights.unlink()
    (tmp_path / "outside").write_bytes(whole)
    weights.symlink_to(tmp_path / "outside")
    with pytest.raises(AdapterError, match="leads out of the directory"):
        read_lora(folder)
    for text, reason in (("{", "is not JSON"), ("[]", "is not a mapping"), ("[" * 100_000, "is not JSON")):
        broken = write_adapter(tmp_path / "b")
        (broken / "adapter_config.json").write_text(text)
        with pytest.raises(AdapterError, match=reason):
            read_lora(broken)
    (broken / "adapter_config.json").unlink()
    with pytest.raises(AdapterError, match=r"adapter_config\.json is missing"):
        read_lora(broken)


def test_all_reasons_come_at_once(tmp_path):
    config = plain_config(use_dora=True, bias="all", r=5)
    with pytest.raises(AdapterError) as caught:
        read_lora(write_adapter(tmp_path, config))
    assert all(reason in str(caught.value) for reason in ("use_dora", "bias is 'all'", "the config says 5"))
