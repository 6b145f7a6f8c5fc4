"""DFT weighs a token by its probability, EAFT by the entropy among the twenty likeliest; neither is differentiated."""

from __future__ import annotations

import math

import pytest
import torch

from cairn.losses.cross_entropy import token_nll, weighted_sum
from cairn.losses.token_weights import dft_weights, eaft_weights

pytestmark = pytest.mark.unit


def test_dft_gradient_is_that_of_the_probability():
    """∇(nll · stop(p)) = −∇p: without the weight the gradient is −∇p / p."""
    logits = torch.randn(6, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    labels = torch.arange(6)
    nll = token_nll(logits, labels)
    loss = nll * dft_weights(nll)
    torch.testing.assert_close(loss, nll * logits.softmax(1)[labels, labels], rtol=1e-12, atol=0)
    (actual,) = torch.autograd.grad(loss.sum(), logits)
    (expected,) = torch.autograd.grad(-logits.softmax(1)[labels, labels].sum(), logits)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("alpha", [0.0, 1.0, 2.0])
def test_eaft_weights(alpha: float):
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(4, 50, generator=generator, dtype=torch.float64)
    expected = []
    for row in logits.tolist():
        powers = [math.exp(x) for x in sorted(row)[-20:]]
        p = [x / sum(powers) for x in powers]
        expected.append((-sum(x * math.log(x) for x in p) / 3) ** alpha)
    weights = eaft_weights(logits.requires_grad_(), alpha=alpha)
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)
    assert not weights.requires_grad


def test_certain_tokens_small_vocabularies_and_no_tokens():
    assert eaft_weights(torch.tensor([[1e4, 0.0, -1e4]])).tolist() == [0.0]
    assert eaft_weights(torch.zeros(1, 40)).item() == pytest.approx(math.log(20) / 3)
    assert dft_weights(torch.tensor([0.0, 1e4])).tolist() == [1.0, 0.0]
    logits = torch.randn(0, 40, requires_grad=True)
    nll = token_nll(logits, torch.zeros(0, dtype=torch.long))
    weighted_sum(nll, dft_weights(nll) * eaft_weights(logits)).backward()
    assert logits.grad.shape == (0, 40)


def test_negative_alpha_is_refused():
    with pytest.raises(ValueError, match="alpha"):
        eaft_weights(torch.zeros(1, 3), alpha=-1.0)
