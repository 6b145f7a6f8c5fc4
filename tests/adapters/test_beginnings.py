"""Beginnings of a LoRA in data, in gradients and in what quantisation took away, against their definitions."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from cairn.adapters.attach import attach_saved
from cairn.adapters.beginnings import DAMPING, GAMMA, eva, weight_of
from cairn.adapters.methods.lora import CHANGING, LOOKING, Lora
from cairn.adapters.preview import Preview, input_moments, weight_gradients
from cairn.adapters.specimens import VOCABULARY, build_specimen, probe_tokens
from cairn.config.model import Quantization
from cairn.data.batch import Batch, collate
from cairn.data.packing import row_of
from cairn.data.rows import Sample
from cairn.errors import AdapterError
from cairn.models.linears import find_targets
from cairn.models.load import load_model
from cairn.models.quantization import dequantised_weight, quantised_linears
from cairn.stages.base import Models
from cairn.stages.sft import Sft

pytestmark = pytest.mark.slow

LENGTHS = ((9, 14), (20,), (11, 6, 5))
"""Of the samples in each row; rows of a batch are padded to the longest."""
LAYER = "model.layers.1.self_attn.q_proj"


def samples() -> list[list[Sample]]:
    draw = np.random.default_rng(0)
    return [
        [
            Sample(
                tokens=draw.integers(3, VOCABULARY, size + 1).astype(np.int32),
                weights=(np.arange(size) >= size // 2).astype(np.float32),
                source_bytes=size,
                source="made up",
                subset="",
            )
            for size in sizes
        ]
        for sizes in LENGTHS
    ]


def preview() -> Preview:
    """The samples packed, in two batches."""
    rows = [row_of(group) for group in samples()]
    batches = [collate(rows[:2], pad_token=0), collate(rows[2:], pad_token=0)]
    stage = Sft(Sft.Config.parse({}))
    return Preview(batches, lambda model: (stage.loss(batch, Models(model)).total for batch in batches))


def alone(model, path: str, *, trained: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs of the linear and its weight's gradient, each sample by itself in a plain forward pass."""
    linear = model.get_submodule(path)
    linear.weight.requires_grad_(True)
    seen, gradient = [], torch.zeros_like(linear.weight)
    handle = linear.register_forward_pre_hook(lambda module, given: seen.append(given[0][0].detach()))
    for sample in (sample for group in samples() for sample in group):
        tokens = torch.from_numpy(sample.tokens).long()
        weights = torch.from_numpy(sample.weights)
        logits = model(input_ids=tokens[None, :-1]).logits[0]
        nats = torch.nn.functional.cross_entropy(logits, tokens[1:], reduction="none")
        gradient += torch.autograd.grad((nats * weights).sum(), linear.weight)[0]
        seen[-1] = seen[-1][weights > 0] if trained else seen[-1]
    handle.remove()
    linear.weight.requires_grad_(False)
    return torch.cat(seen), gradient


def begun(init: str, architecture: str = "llama", dtype: torch.dtype = torch.float32, **config: object):
    method = Lora(Lora.Config.parse({"rank": 4, "alpha": 12.0, "init": init, **config}))
    model = build_specimen(architecture).to(dtype)
    return method, method.begin(model, preview()) if init in LOOKING else method.attach(model)


@torch.no_grad()
def logits(model) -> torch.Tensor:
    return model.eval()(input_ids=probe_tokens()).logits.float()


def close(found: torch.Tensor, wanted: torch.Tensor, tolerance: float = 1e-4) -> None:
    assert float((found - wanted).norm() / wanted.norm()) < tolerance


@pytest.mark.parametrize("trained", [True, False])
def test_packed_rows_are_measured_as_their_samples_alone(trained):
    model = build_specimen("llama")
    paths = find_targets(model, "auto")
    moments = input_moments(model, paths, preview(), trained=trained)
    inputs, gradient = alone(model, LAYER, trained=trained)
    assert moments[LAYER].count == len(inputs)
    close(moments[LAYER].covariance().float(), torch.cov(inputs.t(), correction=0))
    close(moments[LAYER].second().float(), inputs.t() @ inputs / len(inputs))
    assert moments[LAYER] is moments["model.layers.1.self_attn.k_proj"]
    close(weight_gradients(model, [LAYER], preview())[LAYER], gradient)


def test_eva_begins_in_the_directions_of_most_variance():
    _, model = begun("eva", rho=1)
    inputs, _ = alone(build_specimen("llama"), LAYER, trained=True)
    _, _, directions = torch.linalg.svd(inputs - inputs.mean(0), full_matrices=False)
    a = model.get_submodule(f"base_model.model.{LAYER}").lora_A["default"].weight.detach()
    close((a @ directions[:4].t()).abs(), torch.eye(4), 1e-3)
    torch.testing.assert_close(logits(model), logits(build_specimen("llama")), rtol=0, atol=0)


def test_eva_gives_rank_to_layers_where_it_explains_most(tmp_path):
    base = build_specimen("llama")
    moments = input_moments(base, find_targets(base, "auto"), preview(), trained=True)
    factors = eva(moments, {path: len(base.get_submodule(path).weight) for path in moments}, rank=4, rho=2.0)
    ranks = {path: len(a) for path, (a, _) in factors.items()}
    assert sum(ranks.values()) == 4 * len(moments)
    assert len(set(ranks.values())) > 1
    assert max(ranks.values()) <= 8

    def share(path: str, place: int) -> float:
        values = torch.linalg.eigvalsh(moments[path].covariance()).flip(0)
        return float(values[place] / values.sum())

    least_kept = min(share(path, count - 1) for path, count in ranks.items())
    assert all(share(path, ranks.get(path, 0)) <= least_kept + 1e-9 for path in moments if ranks.get(path, 0) < 8)
    method, model = begun("eva")
    layers = {path: model.get_submodule(f"base_model.model.{path}") for path in ranks}
    assert {path: layer.r["default"] for path, layer in layers.items()} == ranks
    assert {layer.scaling["default"] for layer in layers.values()} == {3.0}
    with torch.no_grad():
        for layer in layers.values():
            layer.lora_B["default"].weight.normal_()
    method.save(model, tmp_path)
    torch.testing.assert_close(logits(attach_saved(build_specimen("llama"), tmp_path)), logits(model), rtol=0, atol=0)


@pytest.mark.parametrize(("init", "part"), [("corda", slice(4)), ("corda_kpm", slice(-4, None))])
def test_corda_takes_out_what_counts_most_or_least_for_the_inputs(init, part):
    _, model = begun(init)
    base = build_specimen("llama")
    inputs, _ = alone(base, LAYER, trained=False)
    second = inputs.double().t() @ inputs.double() / len(inputs)
    second += DAMPING * second.diagonal().mean() * torch.eye(len(second))
    weight = base.get_submodule(LAYER).weight.double()
    u, s, vh = torch.linalg.svd(weight @ second)
    layer = model.get_submodule(f"base_model.model.{LAYER}")
    update = 3.0 * layer.lora_B["default"].weight.double() @ layer.lora_A["default"].weight.double()
    close((update @ second).detach(), u[:, part] * s[part] @ vh[part], 1e-3)
    close((layer.base_layer.weight.double() + update).detach(), weight, 1e-6)


def test_lora_ga_begins_in_the_gradient():
    _, model = begun("lora_ga")
    _, gradient = alone(build_specimen("llama"), LAYER, trained=True)
    u, _, vh = torch.linalg.svd(gradient)
    size = math.sqrt(len(gradient)) / GAMMA
    layer = model.get_submodule(f"base_model.model.{LAYER}")
    a, b = layer.lora_A["default"].weight.detach(), layer.lora_B["default"].weight.detach()
    close(a.t() @ a, size * vh[:4].t() @ vh[:4], 2e-2)
    close(b @ b.t(), size * u[:, 4:8] @ u[:, 4:8].t(), 2e-2)


def test_mica_trains_a_alone_from_zero(tmp_path):
    _, model = begun("mica")
    weight = build_specimen("llama").get_submodule(LAYER).weight
    b = model.get_submodule(f"base_model.model.{LAYER}").lora_B["default"].weight
    assert not b.requires_grad
    assert float((b.t() @ weight).norm()) < float(weight.norm()) / 4
    torch.testing.assert_close(logits(model), logits(build_specimen("llama")), rtol=0, atol=0)


def test_loftq_makes_up_for_what_quantisation_took(tiny_path: Path):
    method = Lora(Lora.Config.parse({"rank": 4, "alpha": 12.0, "init": "loftq"}))
    base = load_model(tiny_path, precision="fp32", quantization=Quantization(kind="nf4"))
    lost = {path: dequantised_weight(layer) for path, layer in quantised_linears(base).items()}
    whole = load_model(tiny_path, precision="fp32")
    model = method.attach(base)
    for path in find_targets(whole, "auto"):
        layer = model.get_submodule(f"base_model.model.{path}")
        update = (3.0 * layer.lora_B["default"].weight @ layer.lora_A["default"].weight).detach()
        residual = weight_of(whole.get_submodule(path)) - lost[path]
        left = float(torch.linalg.svdvals(residual)[4:].square().sum().sqrt())
        assert float((residual - update).norm()) == pytest.approx(left, rel=1e-4)
        torch.testing.assert_close(dequantised_weight(layer.base_layer), lost[path], rtol=0, atol=0)
    with pytest.raises(AdapterError, match="is not quantised by bitsandbytes"):
        method.attach(whole)


@pytest.mark.parametrize(
    ("init", "architecture", "dtype"),
    [
        ("eva", "gpt2", torch.float32),
        ("corda", "gpt2", torch.float32),
        ("corda", "llama", torch.bfloat16),
        ("corda_kpm", "llama", torch.float32),
        ("lora_ga", "gpt2", torch.float32),
        ("lora_ga", "gemma2", torch.bfloat16),
        ("mica", "gpt2", torch.float32),
    ],
)
def test_what_is_saved_works_on_the_untouched_base_and_begins_again_bit_for_bit(init, architecture, dtype, tmp_path):
    method, model = begun(init, architecture, dtype)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    tolerance = 1e-4 if dtype == torch.float32 else 5e-2
    close(logits(model), logits(build_specimen(architecture).to(dtype)), tolerance)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name and parameter.requires_grad:
                parameter.add_(0.05 * torch.randn_like(parameter))
    method.save(model, tmp_path)
    close(logits(attach_saved(build_specimen(architecture).to(dtype), tmp_path)), logits(model), tolerance)
    if init not in LOOKING:
        return
    again = dict(method.begin_again(build_specimen(architecture).to(dtype), tmp_path).named_parameters())
    changed = {"lora_A", "lora_B"} if init not in CHANGING else set()
    assert again.keys() == before.keys()
    assert all(torch.equal(again[n], before[n]) for n in before if not changed & set(n.split(".")))


def test_without_rows_or_without_a_gradient_it_is_refused():
    with pytest.raises(AdapterError, match="eva begins in rows of data"):
        Lora(Lora.Config.parse({"rank": 4, "init": "eva"})).attach(build_specimen("llama"))
    nothing = Preview([], lambda model: iter(()))
    with pytest.raises(AdapterError, match="has no gradient at"):
        Lora(Lora.Config.parse({"rank": 4, "init": "lora_ga"})).begin(build_specimen("llama"), nothing)
    for init in ("eva", "corda"):
        with pytest.raises(AdapterError, match="was given no input"):
            Lora(Lora.Config.parse({"rank": 4, "init": init})).begin(build_specimen("llama"), nothing)


def test_a_row_without_a_trained_position_says_so():
    rows = [row_of(group) for group in samples()]
    batch = collate(rows, pad_token=0)
    untrained = Batch(**{**vars(batch), "weights": torch.zeros_like(batch.weights)})
    with pytest.raises(AdapterError, match="no position of the first rows is trained"):
        Lora(Lora.Config.parse({"rank": 4, "init": "eva"})).begin(
            build_specimen("llama"), Preview([untrained], lambda model: iter(()))
        )
