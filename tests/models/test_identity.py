"""Hashes change with what matters and with nothing else."""

from __future__ import annotations

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.tiny import CHATML, build_tokenizer

from cairn.errors import ModelError
from cairn.models import identity
from cairn.models.identity import base_sha256, tokenizer_sha256

pytestmark = pytest.mark.unit


def test_a_copy_has_the_same_hash_and_one_changed_number_another(tiny_path, tmp_path):
    copy = shutil.copytree(tiny_path, tmp_path / "copy")
    (copy / "README.md").write_text("other words")
    assert base_sha256(copy) == base_sha256(tiny_path)
    tensors = load_file(copy / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"] + torch.eye(1, 64)[0]
    save_file(tensors, copy / "model.safetensors", {"format": "pt"})
    assert base_sha256(copy) != base_sha256(tiny_path)


def test_the_weights_are_read_once(tiny_path, tmp_path, monkeypatch):
    copy = shutil.copytree(tiny_path, tmp_path / "copy")
    first = base_sha256(copy)
    monkeypatch.setattr(identity, "BLOCK_BYTES", 0)
    assert base_sha256(copy) == first


def test_no_weights_no_hash(tmp_path):
    with pytest.raises(ModelError, match="has no safetensors"):
        base_sha256(tmp_path)


def test_a_tokenizer_survives_saving_and_shows_changes(tmp_path):
    from transformers import AutoTokenizer

    tokenizer = build_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    assert tokenizer_sha256(AutoTokenizer.from_pretrained(tmp_path)) == tokenizer_sha256(tokenizer)
    assert tokenizer_sha256(build_tokenizer(chat_template=CHATML + " ")) != tokenizer_sha256(tokenizer)
    assert tokenizer_sha256(tokenizer, template=False) == tokenizer_sha256(build_tokenizer(chat_template=None))
    grown = build_tokenizer()
    grown.add_tokens(["<new>"])
    assert tokenizer_sha256(grown) != tokenizer_sha256(tokenizer)


def test_use_does_not_change_a_tokenizers_hash():
    tokenizer = build_tokenizer()
    before = tokenizer_sha256(tokenizer)
    tokenizer(["a", "bcd"], padding=True, truncation=True, max_length=2)
    assert tokenizer_sha256(tokenizer) == before
