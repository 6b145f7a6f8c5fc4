"""Every model that cannot be used is refused in words, with the next step."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cairn.errors import ModelError
from cairn.models.load import (
    load_config,
    load_model,
    load_tokenizer,
    position_limit,
    require_positions,
)
from cairn.models.locate import locate

pytestmark = pytest.mark.unit


@pytest.fixture
def broken(tiny_path: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model to break."""
    return Path(shutil.copytree(tiny_path, tmp_path / "model"))


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_a_directory_becomes_a_model_in_evaluation_mode(tiny_path, precision, dtype):
    model = load_model(tiny_path, precision=precision)
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}


def test_attention_is_the_asked_one(tiny_path):
    assert load_model(tiny_path, precision="fp32", attention="eager").config._attn_implementation == "eager"
    assert load_model(tiny_path, precision="fp32").config._attn_implementation == "sdpa"


def test_an_attention_that_is_not_there_says_what_to_set(tiny_path):
    with pytest.raises(ModelError, match=r"(?s)cannot be loaded.*model\.attention=auto"):
        load_model(tiny_path, precision="fp32", attention="flash_attention_2")


def test_a_tokenizer_pads_and_decodes_exactly(tiny_path):
    tokenizer = load_tokenizer(tiny_path)
    assert tokenizer.pad_token_id is not None
    text = "a , b . c ?\n  d"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


@pytest.mark.parametrize("path", ["./missing", "/no/such/place", "missing", "a/b/c", "missing.gguf"])
def test_a_path_that_is_not_there_never_goes_online(path, monkeypatch):
    monkeypatch.setattr("cairn.models.locate.from_hub", lambda *_, **__: pytest.fail("went online"))
    with pytest.raises(ModelError, match=r"(?s)no such model directory.*cairn sample"):
        locate(path)


def test_a_hub_name_that_cannot_be_reached_says_so():
    with pytest.raises(ModelError, match=r"(?s)some/model: no directory of this name.*cairn sample"):
        load_model("some/model", precision="fp32")


def test_a_file_that_is_no_gguf_is_refused(tiny_path):
    with pytest.raises(ModelError, match="a file that is no GGUF"):
        locate(tiny_path / "config.json")


def test_without_config_it_may_be_an_adapter(broken):
    (broken / "config.json").unlink()
    with pytest.raises(ModelError, match=r"(?s)has no config\.json.*give its base model"):
        load_model(broken, precision="fp32")


@pytest.mark.parametrize("text", ["{", '{"model_type": "no_such_family"}', "{}"])
def test_a_config_that_means_nothing_is_refused(broken, text):
    (broken / "config.json").write_text(text)
    with pytest.raises(ModelError, match=r"config\.json cannot be used"):
        load_config(broken)


def test_a_model_that_writes_no_text_is_refused(broken):
    (broken / "config.json").write_text(json.dumps({"model_type": "vit"}))
    with pytest.raises(ModelError, match="the model cannot be loaded"):
        load_model(broken, precision="fp32")


def test_without_tokenizer_it_says_what_to_copy(broken):
    for file in [*broken.glob("tokenizer*"), *broken.glob("*.jinja")]:
        file.unlink()
    with pytest.raises(ModelError, match=r"(?s)has no tokenizer.*copy tokenizer\.json"):
        load_tokenizer(broken)


def test_a_broken_tokenizer_is_refused(broken):
    (broken / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match="the tokenizer cannot be loaded"):
        load_tokenizer(broken)


def test_without_weights_it_says_what_is_needed(broken):
    (broken / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"(?s)has no weights.*model\.safetensors"):
        load_model(broken, precision="fp32")


def test_pickled_weights_are_refused_unopened(broken):
    (broken / "model.safetensors").unlink()
    (broken / "pytorch_model.bin").write_bytes(b"not even a pickle")
    with pytest.raises(ModelError, match=r"(?s)the weights are pickles \(pytorch_model\.bin\).*can run code"):
        load_model(broken, precision="fp32")


def test_a_missing_shard_is_named(broken):
    index = {"weight_map": {"model.embed_tokens.weight": "model-00002-of-00002.safetensors"}}
    (broken / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="1 weight files are missing: model-00002-of-00002"):
        load_model(broken, precision="fp32")


def test_truncated_weights_are_refused(broken):
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(ModelError, match="the model cannot be loaded"):
        load_model(broken, precision="fp32")


def test_weights_with_gaps_are_refused_not_filled_at_random(broken):
    tensors = load_file(broken / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, broken / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"lack 1 tensors.*layers\.1\.mlp\.up_proj"):
        load_model(broken, precision="fp32")


def test_weights_of_another_shape_are_refused(broken):
    tensors = load_file(broken / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"] = torch.ones(4, 4)
    save_file(tensors, broken / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match="the model cannot be loaded"):
        load_model(broken, precision="fp32")


def test_code_in_a_model_runs_only_when_trusted(broken):
    config = json.loads((broken / "config.json").read_text())
    config.update(model_type="own", auto_map={"AutoConfig": "trap.Trap", "AutoModelForCausalLM": "trap.Trap"})
    (broken / "config.json").write_text(json.dumps(config))
    (broken / "trap.py").write_text("raise SystemExit('the code ran')")
    with pytest.raises(ModelError, match=r"model\.trust_remote_code=true"):
        load_model(broken, precision="fp32")


def test_positions_bound_the_sequence(tiny_path):
    config = load_config(tiny_path)
    assert position_limit(config) == 512
    require_positions(config, 512, where="data.sequence_length")
    with pytest.raises(ModelError, match=r"data\.sequence_length: 513 tokens.*512 positions.*\n.*at most 512"):
        require_positions(config, 513, where="data.sequence_length")
