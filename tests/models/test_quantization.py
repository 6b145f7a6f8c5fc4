"""Quantised bases: how small they are, what they compute, and which are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.generation.lora import save_lora
from tests.tiny import save_tiny
from transformers.pytorch_utils import Conv1D

from cairn.adapters.attach import attach_saved
from cairn.adapters.files import read_lora
from cairn.config.model import Quantization
from cairn.errors import ModelError
from cairn.generation.generator import Generator
from cairn.generation.request import Request
from cairn.models.kernels.frozen_linear import FrozenLinear, use_frozen_linears
from cairn.models.load import load_model, load_tokenizer
from cairn.models.quantization import (
    dequantised,
    dequantised_weight,
    is_quantised,
    quantised_bytes,
    quantised_linears,
    quantised_sha256,
)

pytestmark = pytest.mark.slow

KINDS = ("nf4", "fp4", "int8")
TOKENS = torch.arange(48).view(2, 24)


@pytest.fixture(scope="module")
def wide_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose smallest linear has more numbers than a codebook."""
    return save_tiny(tmp_path_factory.mktemp("wide") / "model", hidden_size=128)


def load(path: Path, kind: str, precision: str = "fp32", **options: Any) -> Any:
    """The model at `path`, quantised."""
    return load_model(path, precision=precision, quantization=Quantization.parse({"kind": kind, **options}))


def logits(model: Any, tokens: torch.Tensor = TOKENS) -> torch.Tensor:
    """[rows, length, vocabulary]."""
    with torch.no_grad():
        found: torch.Tensor = model(input_ids=tokens).logits
    return found


@pytest.mark.parametrize(("kind", "saved"), [("nf4", 0.80), ("fp4", 0.80), ("int8", 0.70)])
def test_quantised_layers_are_as_small_as_promised(kind: str, saved: float, wide_path: Path) -> None:
    model = load(wide_path, kind)
    held, plain = quantised_bytes(model)
    assert plain == sum(4 * layer.in_features * layer.out_features for layer in quantised_linears(model).values())
    assert len(quantised_linears(model)) == 14, "all but the head"
    assert 1 - held / plain >= saved


@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_depend_on_the_file_alone(kind: str, wide_path: Path) -> None:
    fp32, bf16 = load(wide_path, kind), load(wide_path, kind, "bf16")
    assert quantised_sha256(fp32) == quantised_sha256(bf16) != quantised_sha256(load(wide_path, "nf4", double=False))
    assert {p.dtype for p in bf16.parameters() if p.is_floating_point()} == {torch.bfloat16}
    assert (logits(bf16).float() - logits(fp32)).norm() <= 2e-2 * logits(fp32).norm()


@pytest.mark.parametrize("kind", KINDS)
def test_training_and_evaluation_compute_with_the_dequantised_weights(kind: str, wide_path: Path) -> None:
    """Also row by row: no row's outliers change its neighbours."""
    model = load(wide_path, kind)
    layer = model.model.layers[0].mlp.up_proj
    x = torch.randn(3, 5, layer.in_features, generator=torch.Generator().manual_seed(0)) * 20
    x.requires_grad_()
    wanted = x @ dequantised_weight(layer).T
    for training in (True, False):
        found = layer.train(training)(x)
        assert torch.allclose(found, wanted, rtol=1e-5, atol=1e-5)
        assert torch.equal(layer(x[1:2]), found[1:2])
        (gradient,) = torch.autograd.grad(found.sum(), x)
        assert torch.allclose(gradient, dequantised_weight(layer).sum(0).expand_as(x), rtol=1e-5, atol=1e-5)
    expected = logits(model.eval())
    plain = dequantised(model)
    assert not is_quantised(plain)
    assert torch.allclose(logits(plain), expected, rtol=1e-5, atol=1e-5)


def test_products_in_another_dtype(wide_path: Path) -> None:
    for kind in ("nf4", "int8"):
        plain, mixed = load(wide_path, kind), load(wide_path, kind, compute="bf16")
        assert logits(mixed).dtype == torch.float32
        assert 0 < (logits(mixed) - logits(plain)).norm() <= 2e-2 * logits(plain).norm()


def test_frozen_linears_take_the_head_and_leave_quantised_layers_alone(
    wide_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cairn.models.kernels import frozen_linear
    from cairn.models.kernels.measure import Pays

    monkeypatch.setattr(frozen_linear, "measure_pays", lambda *_, **__: Pays(True, True, True))
    model = load(wide_path, "nf4")
    expected = logits(model)
    before = quantised_sha256(model)
    assert use_frozen_linears(model, training=False) == 1
    assert isinstance(model.lm_head, FrozenLinear)
    assert torch.allclose(logits(model), expected, rtol=1e-5, atol=1e-5)
    assert quantised_sha256(model) == before


def test_named_modules_stay_as_they_are(wide_path: Path) -> None:
    kept = load(wide_path, "nf4", keep=["q_proj"])
    assert len(quantised_linears(kept)) == 12
    assert {type(kept.model.layers[0].self_attn.q_proj), type(kept.lm_head)} == {torch.nn.Linear}
    with pytest.raises(ModelError, match=r"no module called q_porj(.|\n)*q_proj"):
        load(wide_path, "nf4", keep=["q_porj"])


def test_a_transposed_linear_comes_back_transposed(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config(vocab_size=260, n_embd=64, n_layer=1, n_head=2, n_positions=64)).save_pretrained(
        tmp_path
    )
    for kind in ("nf4", "int8"):
        model = load(tmp_path, kind)
        assert len(quantised_linears(model)) == 4
        expected = logits(model)
        plain = dequantised(model)
        assert isinstance(plain.transformer.h[0].attn.c_attn, Conv1D)
        assert torch.allclose(logits(plain), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("kind", "precision"), [("nf4", "fp32"), ("int8", "bf16")])
def test_adapters_are_served_beside_a_quantised_base(
    kind: str, precision: str, wide_path: Path, tmp_path: Path
) -> None:
    """In a mixed batch each answers as it does alone in PEFT."""
    folders = {
        name: save_lora(tmp_path / name, rank=4, seed=seed, base=load_model(wide_path, precision="fp32"))
        for seed, name in enumerate(("one", "two"))
    }
    generator = Generator(load(wide_path, kind, precision), load_tokenizer(wide_path))
    for name, folder in folders.items():
        generator.load(name, read_lora(folder))
    tokens = tuple(range(40, 60))
    requests = [Request(tokens, adapter=name, max_tokens=1, logprobs=0) for name in (*folders, None)]
    tolerance = 1e-4 if precision == "fp32" else 5e-2
    for name, answer in zip((*folders, None), generator.generate(requests), strict=True):
        alone = load(wide_path, kind, precision)
        alone = attach_saved(alone, folders[name]) if name else alone
        wanted = logits(alone, torch.tensor([tokens]))[0, -1].float().log_softmax(-1)
        assert answer.logprobs[0].logprob == pytest.approx(float(wanted[answer.tokens[0]]), abs=tolerance)


def test_a_service_holds_its_base_in_few_bits(wide_path: Path, tmp_path: Path) -> None:
    from cairn.serving.base import load_base
    from cairn.serving.settings import InferenceSettings

    settings = {"model": str(wide_path), "storage": str(tmp_path), "quantization": "int8"}
    served = load_base(InferenceSettings.read(settings)).model
    assert quantised_sha256(served) == quantised_sha256(load(wide_path, "int8"))


@pytest.mark.parametrize(("method", "packages"), [("gptq", "optimum and gptqmodel"), ("awq", "gptqmodel")])
def test_a_base_that_is_quantised_already_needs_its_package(
    method: str, packages: str, tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(tiny_path, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": method, "bits": 4, "group_size": 128}
    (folder / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr("cairn.models.quantization.find_spec", lambda name: None)
    with pytest.raises(ModelError, match=f"{packages} is not installed"):
        load_model(folder, precision="fp32")
    with pytest.raises(ModelError, match=rf"quantised already \({method}\)"):
        load(folder, "nf4")


def test_a_gguf_file_is_not_quantised_again(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match="quantised already"):
        load(tmp_path / "model.gguf", "nf4")
