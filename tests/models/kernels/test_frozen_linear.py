"""The frozen linear equals the plain one, forward and backward, and follows its weight wherever it goes."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from tests.models.families import build_family
from torch import nn

from cairn.adapters.methods.lora import Lora
from cairn.models.kernels import frozen_linear
from cairn.models.kernels.frozen_linear import FrozenLinear, use_frozen_linears
from cairn.models.kernels.measure import Pays, measure_pays

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN"),
]


@pytest.fixture(autouse=True)
def always_pays(monkeypatch):
    monkeypatch.setattr(frozen_linear, "measure_pays", lambda *_, **__: Pays(True, True, True))


def layers(dtype=torch.float32, *, bias=True, training=True) -> tuple[nn.Linear, nn.Linear]:
    torch.manual_seed(0)
    plain = nn.Linear(48, 80, bias=bias, dtype=dtype).requires_grad_(False)
    frozen = copy.deepcopy(plain)
    assert use_frozen_linears(frozen, training=training) == 1
    assert type(frozen) is FrozenLinear
    return plain, frozen


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.double() - wanted.double()).abs().max() / wanted.double().abs().max())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(48,), (1, 48), (3, 5, 48), (200, 48), (0, 48)])
def test_forward_equals_plain(shape, bias):
    plain, frozen = layers(bias=bias)
    x = torch.randn(shape)
    assert frozen(x).shape == plain(x).shape
    assert x.numel() == 0 or relative(frozen(x), plain(x)) < 2e-6
    strided = torch.randn(48, 7).T
    assert relative(frozen(strided), plain(strided)) < 2e-6


def test_backward_equals_plain_and_weights_get_no_gradient():
    plain, frozen = layers()
    x = torch.randn(6, 4, 48, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    upstream = torch.randn(4, 6, 80).transpose(0, 1)
    plain(x).backward(upstream)
    frozen(y).backward(upstream)
    assert relative(y.grad, x.grad) < 2e-6
    assert frozen.weight.grad is None


def test_bf16_agrees_within_bf16():
    plain, frozen = layers(torch.bfloat16)
    x = torch.randn(9, 48, dtype=torch.bfloat16)
    assert frozen(x).dtype == torch.bfloat16
    assert relative(frozen(x), plain(x)) < 1e-2


def check_followed(frozen: nn.Linear, x: torch.Tensor) -> None:
    wanted = x @ frozen._parameters["weight"].T + frozen._parameters["bias"]
    assert relative(frozen(x), wanted) < 2e-6


def test_packs_again_after_every_way_to_change_the_weight():
    _, frozen = layers()
    x = torch.randn(5, 48)
    before = frozen(x)
    with torch.no_grad():
        frozen._parameters["weight"].mul_(2.0)
    check_followed(frozen, x)
    frozen.weight.data += 1.0
    check_followed(frozen, x)
    frozen._parameters["weight"].data = torch.randn(80, 48)
    check_followed(frozen, x)
    frozen.load_state_dict({"weight": torch.ones(80, 48), "bias": torch.zeros(80)})
    check_followed(frozen, x)
    assert relative(frozen(x), before) > 0.1


def test_a_layer_that_is_thawed_is_plain_again():
    _, frozen = layers()
    frozen.weight.requires_grad_(True)
    frozen(torch.randn(2, 48)).sum().backward()
    assert frozen.weight.grad is not None


def test_without_training_a_gradient_still_comes_out_right():
    plain, frozen = layers(training=False)
    x = torch.randn(2, 48, requires_grad=True)
    frozen(x).sum().backward()
    torch.testing.assert_close(x.grad, plain.weight.sum(dim=0).expand(2, 48))


def test_copies_and_pickles_are_whole_and_keys_unchanged():
    plain, frozen = layers()
    x = torch.randn(3, 48)
    wanted = frozen(x)
    file = io.BytesIO()
    torch.save(frozen, file)
    file.seek(0)
    for other in (copy.deepcopy(frozen), torch.load(file, weights_only=False)):
        torch.testing.assert_close(other(x), wanted, rtol=0, atol=0)
    assert list(frozen.state_dict()) == list(plain.state_dict())


def test_a_trainable_linear_is_left_alone():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4).requires_grad_(False))
    assert use_frozen_linears(model, training=True) == 1
    assert type(model[0]) is nn.Linear


def test_where_it_does_not_pay_the_layer_stays_plain(monkeypatch):
    monkeypatch.setattr(frozen_linear, "measure_pays", lambda *_, **__: Pays(False, False, False))
    model = nn.Linear(4, 4).requires_grad_(False)
    assert use_frozen_linears(model, training=True) == 0
    assert type(model) is nn.Linear


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_a_whole_adapted_model_trains_the_same(family):
    tokens = torch.arange(24).reshape(2, 12)
    results = []
    for prepacked in (False, True):
        model = Lora(Lora.Config(rank=4)).attach(build_family(family))
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.data.fill_(0.01)
        if prepacked:
            assert use_frozen_linears(model, training=True) == 15
        logits = model(input_ids=tokens).logits
        logits.logsumexp(dim=-1).sum().backward()
        gradients = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        results.append((logits.detach(), gradients, list(model.state_dict())))
    assert relative(results[1][0], results[0][0]) < 1e-5
    assert relative(results[1][1], results[0][1]) < 1e-5
    assert results[0][2] == results[1][2]


def test_a_verdict_is_measured_once_and_kept(cairn_home, monkeypatch):
    from cairn.models.kernels import measure

    first = measure_pays(24, 40, torch.float32, training=True)
    measure_pays.cache_clear()
    monkeypatch.setattr(measure, "_measure", lambda *_, **__: pytest.fail("measured again"))
    assert measure_pays(24, 40, torch.float32, training=True) == first
    assert list((cairn_home / "kernels").glob("*.json"))
