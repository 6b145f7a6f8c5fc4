"""A GGUF file becomes the same model, unmarked, by every way in; a broken one is refused."""

from __future__ import annotations

import stat
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from tests.tiny import CHATML, build_tokenizer

from cairn.errors import ModelError
from cairn.models.gguf import write_directory
from cairn.models.identity import base_sha256
from cairn.models.load import load_config, load_model, load_tokenizer

pytestmark = pytest.mark.unit

HIDDEN, INNER, LAYERS = 64, 128, 1
PROMPT = torch.arange(12)[None]


def add_tokenizer(writer: gguf.GGUFWriter, rule: str) -> int:
    vocabulary = build_tokenizer().get_vocab()
    tokens = [*sorted(vocabulary, key=vocabulary.__getitem__), "ĠĠ"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(rule)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens])
    writer.add_token_merges(["Ġ Ġ"])
    writer.add_bos_token_id(vocabulary["<|endoftext|>"])
    writer.add_eos_token_id(vocabulary["<|im_end|>"])
    writer.add_chat_template(CHATML)
    return len(tokens)


def add_weights(writer: gguf.GGUFWriter, vocabulary: int) -> None:
    random = np.random.default_rng(0)
    shapes = {"token_embd.weight": (vocabulary, HIDDEN), "output_norm.weight": (HIDDEN,)}
    for name, shape in (
        ("attn_norm", (HIDDEN,)),
        ("ffn_norm", (HIDDEN,)),
        ("attn_q", (HIDDEN, HIDDEN)),
        ("attn_k", (HIDDEN // 2, HIDDEN)),
        ("attn_v", (HIDDEN // 2, HIDDEN)),
        ("attn_output", (HIDDEN, HIDDEN)),
        ("ffn_gate", (INNER, HIDDEN)),
        ("ffn_up", (INNER, HIDDEN)),
        ("ffn_down", (HIDDEN, INNER)),
    ):
        shapes[f"blk.0.{name}.weight"] = shape
    for name, shape in shapes.items():
        tensor = random.normal(size=shape).astype(np.float32) / 5
        if len(shape) == 1:
            writer.add_tensor(name, tensor)
        else:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quants.quantize(tensor, kind), raw_dtype=kind)


def write_gguf(path: Path, *, rule: str = "smollm") -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(16)
    vocabulary = add_tokenizer(writer, rule)
    writer.add_vocab_size(vocabulary)
    add_weights(writer, vocabulary)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def gguf_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@torch.no_grad()
def logits(model) -> torch.Tensor:
    return model(input_ids=PROMPT).logits


def test_file_and_written_directory_equal_what_transformers_reads(gguf_path, tmp_path):
    from transformers import AutoModelForCausalLM

    wanted = AutoModelForCausalLM.from_pretrained(gguf_path.parent, gguf_file=gguf_path.name, dtype=torch.float32)
    write_directory(gguf_path, tmp_path)
    for path in (gguf_path, tmp_path):
        model = load_model(path, precision="fp32")
        torch.testing.assert_close(logits(model), logits(wanted), rtol=0, atol=0)
        assert not hasattr(model.config, "quantization_config")
        assert not model.training
        assert load_config(path).num_hidden_layers == LAYERS
        assert not hasattr(load_config(path), "quantization_config")
    mode = stat.S_IMODE((tmp_path / "model.safetensors").stat().st_mode)
    assert mode == stat.S_IMODE((tmp_path / "config.json").stat().st_mode)
    assert load_model(gguf_path, precision="bf16").dtype == torch.bfloat16
    assert len({base_sha256(gguf_path), base_sha256(tmp_path)}) == 2


def test_the_tokenizer_keeps_its_template_its_end_and_its_rule_for_digits(gguf_path, tmp_path):
    write_directory(gguf_path, tmp_path)
    for path in (gguf_path, tmp_path):
        tokenizer = load_tokenizer(path)
        assert tokenizer.chat_template == CHATML
        assert tokenizer.eos_token == "<|im_end|>"
        assert tokenizer.convert_ids_to_tokens(tokenizer("a  1")["input_ids"]) == ["a", "ĠĠ", "1"]
    assert load_model(tmp_path, precision="fp32").generation_config.eos_token_id == tokenizer.eos_token_id
    assert load_tokenizer(tmp_path).model_max_length == 128


def test_another_rule_is_left_as_transformers_has_it(tmp_path):
    tokenizer = load_tokenizer(write_gguf(tmp_path / "other.gguf", rule="gpt-2"))
    assert tokenizer.convert_ids_to_tokens(tokenizer("a  1")["input_ids"]) == ["a", "Ġ", "Ġ", "1"]


def test_a_broken_file_is_refused(gguf_path, tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(gguf_path.read_bytes()[:5000])
    for load in (lambda path: load_model(path, precision="fp32"), load_tokenizer, load_config):
        with pytest.raises(ModelError, match=r"(?s)the GGUF file cannot be loaded.*sha256"):
            load(broken)
