"""A loss in chunks of logits is the plain loss, with its gradients, for every family and every head."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tests.models.families import FAMILIES, build_family
from torch.nn import functional as F

from cairn.models import head
from cairn.models.attention import forward_inputs
from cairn.models.forward import logits_at
from cairn.models.head import losses_at
from cairn.models.kernels.frozen_linear import use_frozen_linears

pytestmark = pytest.mark.unit

TOKENS = torch.arange(32).reshape(2, 16) * 7 % 100
SEGMENTS = torch.tensor([[1] * 6 + [2] * 10, [1] * 9 + [2] * 5 + [0] * 2])
POSITIONS = torch.tensor([[*range(6), *range(10)], [*range(9), *range(5), 0, 0]])
WANTED = torch.tensor([30, 3, 20, 7, 8, 9, 11])
LABELS = torch.tensor([1, 99, 0, 4, 5, 6, 7])
UPSTREAM = torch.tensor([0.5, -1.0, 2.0, 0.0, 1.0, 3.0, -0.25])


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three positions at a time."""
    monkeypatch.setattr(head, "CHUNK_LOGITS", 300)


def nll(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.float(), labels, reduction="none")


def both(model: Any, *, wanted: torch.Tensor = WANTED, labels: torch.Tensor = LABELS) -> tuple[Any, Any, list[int]]:
    """Losses and gradients in chunks and of all logits, and how many positions each call of the loss saw."""
    seen: list[int] = []

    def recorded(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        seen.append(len(logits))
        return nll(logits, labels)

    plain = copy.deepcopy(model)
    inputs = forward_inputs(TOKENS, SEGMENTS, POSITIONS, model)
    mine = losses_at(model, inputs, wanted, labels, recorded)
    theirs = nll(logits_at(plain, inputs, wanted), labels)
    for losses in (mine, theirs):
        (losses * UPSTREAM[: len(losses)]).sum().backward()
    gradients = [{name: p.grad for name, p in each.named_parameters()} for each in (model, plain)]
    return (mine, gradients[0]), (theirs, gradients[1]), seen


def assert_equal(mine: Any, theirs: Any) -> None:
    torch.testing.assert_close(mine[0], theirs[0], rtol=1e-5, atol=1e-6)
    assert any(gradient is not None for gradient in mine[1].values())
    for name, gradient in theirs[1].items():
        if gradient is None:
            assert mine[1][name] is None, name
        else:
            assert torch.linalg.norm(mine[1][name] - gradient) <= 1e-5 * torch.linalg.norm(gradient), name


@pytest.mark.parametrize("family", FAMILIES)
def test_a_trained_head_of_every_family(family: str) -> None:
    model = build_family(family)
    mine, theirs, seen = both(model)
    assert_equal(mine, theirs)
    assert max(seen) == (7 if family == "gemma2" else 3)  # its softcap stands after the head


@pytest.mark.parametrize("after", [{"logit_scale": 0.25}, {"logits_scaling": 4.0}])
def test_a_family_that_scales_its_logits_is_computed_whole(after: dict[str, float]) -> None:
    family = "cohere" if "logit_scale" in after else "granite"
    mine, theirs, seen = both(build_family(family, pad_token_id=0, **after))
    assert_equal(mine, theirs)
    assert seen == [7]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("packed", [True, False])
def test_a_frozen_head_takes_each_product_once(tied: bool, packed: bool) -> None:
    model = build_family("llama", tie_word_embeddings=tied).requires_grad_(False)
    model.model.layers[0].mlp.up_proj.weight.requires_grad_()
    if packed:
        use_frozen_linears(model, training=True)
    mine, theirs, seen = both(model)
    assert_equal(mine, theirs)
    assert seen == [3, 3, 1]


def test_a_head_with_a_bias() -> None:
    biased = build_family("llama", tie_word_embeddings=False)
    biased.lm_head.bias = torch.nn.Parameter(torch.linspace(-1, 1, 100))
    mine, theirs, seen = both(biased)
    assert_equal(mine, theirs)
    assert max(seen) == 3


def test_in_bf16_within_its_tolerance() -> None:
    model = build_family("llama").to(torch.bfloat16).requires_grad_(False)
    model.model.layers[0].mlp.up_proj.weight.requires_grad_()
    (losses, gradients), (wanted, theirs), _ = both(model)
    torch.testing.assert_close(losses, wanted, rtol=2e-2, atol=2e-2)
    name = "model.layers.0.mlp.up_proj.weight"
    assert torch.linalg.norm(gradients[name] - theirs[name]) < 2e-2 * torch.linalg.norm(theirs[name])


def test_no_position_still_reaches_the_parameters() -> None:
    none = torch.zeros(0, dtype=torch.long)
    mine, theirs, seen = both(build_family("llama"), wanted=none, labels=none)
    assert seen == []
    assert mine[0].shape == theirs[0].shape == (0,)
    assert mine[1]["model.layers.0.mlp.up_proj.weight"] is not None


def test_the_probe_draws_no_random_numbers_and_the_head_is_left_as_it_was() -> None:
    model = build_family("llama", attention_dropout=0.5).train()
    inputs = forward_inputs(TOKENS, SEGMENTS, POSITIONS, model)
    torch.manual_seed(3)
    first = losses_at(model, inputs, WANTED, LABELS, nll)
    torch.manual_seed(3)
    assert torch.equal(first, losses_at(model, inputs, WANTED, LABELS, nll))
    assert "forward" not in model.lm_head.__dict__
    assert model(**inputs).logits.shape == (2, 16, 100)
