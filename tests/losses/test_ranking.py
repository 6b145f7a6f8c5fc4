"""Bradley–Terry equals its formula with margin and centring; accuracy and margin are sums that add up."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from cairn.losses.ranking import bradley_terry, order_metrics
from cairn.metrics import merge

pytestmark = pytest.mark.unit

CHOSEN = [1.0, -0.5, 3.0, 2.0]
REJECTED = [0.2, 0.5, 3.0, -4.0]
MARGIN = [0.0, 1.0, 0.5, 2.0]


def scores() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor(CHOSEN, dtype=torch.float64), torch.tensor(REJECTED, dtype=torch.float64)


def nats(margin: float) -> float:
    return math.log(1 + math.exp(-margin))


@pytest.mark.parametrize("centring", [0.0, 0.01])
def test_bradley_terry_is_its_formula_and_its_gradient(centring: float):
    margin = torch.tensor(MARGIN, dtype=torch.float64)
    expected = [nats(c - r - m) + centring * (c + r) ** 2 for c, r, m in zip(CHOSEN, REJECTED, MARGIN, strict=True)]
    loss = bradley_terry(*scores(), margin=margin, centring=centring)
    torch.testing.assert_close(loss, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(
        lambda c, r: bradley_terry(c, r, margin=margin, centring=centring),
        tuple(values.requires_grad_() for values in scores()),
    )


def test_equal_scores_cost_ln_2_and_extremes_stay_finite():
    assert bradley_terry(torch.zeros(1), torch.zeros(1)).item() == pytest.approx(math.log(2))
    far = torch.tensor([1e4, -1e4, 0.0], requires_grad=True)
    loss = bradley_terry(far, -far.detach(), margin=3.0, centring=0.01)
    (gradient,) = torch.autograd.grad(loss.sum(), far)
    assert loss.isfinite().all()
    assert gradient.isfinite().all()


def test_bf16_scores_are_compared_in_fp32():
    loss = bradley_terry(torch.tensor([100.5], dtype=torch.bfloat16), torch.tensor([-0.25], dtype=torch.bfloat16))
    assert loss.dtype == torch.float32


def test_a_long_ranking_counts_as_much_as_one_pair():
    """A ranking of four: six pairs of weight ⅙ have the weight of one pair, and their sum is the mean."""
    ranked = torch.tensor([2.0, 1.5, 0.1, -1.0], dtype=torch.float64)
    pairs = torch.tensor(list(itertools.combinations(range(4), 2)))
    loss = bradley_terry(ranked[pairs[:, 0]], ranked[pairs[:, 1]])
    weights = torch.full((6,), 1 / 6, dtype=torch.float64)
    expected = sum(nats((ranked[i] - ranked[j]).item()) for i, j in itertools.combinations(range(4), 2)) / 6
    assert weights.sum().item() == pytest.approx(1.0)
    assert (loss * weights).sum().item() == pytest.approx(expected, rel=1e-12)


def test_accuracy_counts_a_tie_half_and_parts_add_up():
    chosen, rejected = scores()
    weights = torch.tensor([1.0, 0.5, 2.0, 0.5])
    whole = order_metrics(chosen, rejected, weights)
    assert whole["accuracy"].value == pytest.approx((1.0 + 0.0 + 2.0 * 0.5 + 0.5) / 4.0)
    assert whole["margin"].value == pytest.approx((0.8 * 1 - 1.0 * 0.5 + 0.0 + 6.0 * 0.5) / 4.0)
    parts = merge(
        [order_metrics(chosen[:1], rejected[:1], weights[:1]), order_metrics(chosen[1:], rejected[1:], weights[1:])]
    )
    assert {name: metric.value for name, metric in parts.items()} == pytest.approx(
        {name: metric.value for name, metric in whole.items()}
    )


def test_negative_centring_is_refused():
    with pytest.raises(ValueError, match="centring"):
        bradley_terry(*scores(), centring=-0.1)
