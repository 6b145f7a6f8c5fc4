"""Cross-entropy equals its closed form in float64, whatever the dtype of the logits."""

from __future__ import annotations

import pytest
import torch

from cairn.losses.cross_entropy import token_nll, weighted_sum

pytestmark = pytest.mark.unit


def closed_form(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    wide = logits.double()
    return wide.exp().sum(dim=1).log() - wide[torch.arange(len(labels)), labels]


@pytest.fixture
def case() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return 3 * torch.randn(50, 1000, generator=generator), torch.randint(0, 1000, (50,), generator=generator)


def test_float64_is_exact(case):
    logits, labels = case
    torch.testing.assert_close(token_nll(logits.double(), labels), closed_form(logits, labels), rtol=1e-12, atol=1e-12)


def test_fp32_and_bf16_logits_are_summed_in_fp32(case):
    logits, labels = case
    for given in (logits, logits.bfloat16()):
        nll = token_nll(given, labels)
        assert nll.dtype == torch.float32
        torch.testing.assert_close(nll.double(), closed_form(given, labels), rtol=1e-5, atol=1e-6)


def test_gradient_is_softmax_minus_one_hot(case):
    logits, labels = case
    logits = logits.double().requires_grad_()
    weights = torch.linspace(0, 2, 50).double()
    weighted_sum(token_nll(logits, labels), weights).backward()
    wanted = logits.detach().softmax(dim=1)
    wanted[torch.arange(50), labels] -= 1
    torch.testing.assert_close(logits.grad, wanted * weights[:, None], rtol=1e-10, atol=1e-12)


def test_sum_over_nothing_is_zero_and_connected():
    logits = torch.randn(0, 10, requires_grad=True)
    total = weighted_sum(token_nll(logits, torch.zeros(0, dtype=torch.long)), torch.zeros(0))
    assert float(total.detach()) == 0.0
    assert total.requires_grad


def test_label_smoothing_mixes_in_the_mean_over_the_vocabulary(case):
    logits, labels = case
    log_p = logits.double() - logits.double().exp().sum(dim=1, keepdim=True).log()
    expected = 0.9 * closed_form(logits, labels) - 0.1 * log_p.sum(dim=1) / logits.shape[1]
    torch.testing.assert_close(
        token_nll(logits.double(), labels, label_smoothing=0.1), expected, rtol=1e-12, atol=1e-12
    )
    narrow = logits[:3, :7].double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: token_nll(x, torch.arange(3), label_smoothing=0.1), (narrow,))


@pytest.mark.parametrize("wrong", [-0.1, 1.0])
def test_label_smoothing_leaves_the_label_a_share(case, wrong):
    with pytest.raises(ValueError, match="label_smoothing"):
        token_nll(*case, label_smoothing=wrong)
