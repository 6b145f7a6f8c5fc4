"""KTO equals its paper's formula for good and bad answers, and its baseline is of the whole global batch."""

from __future__ import annotations

import math

import pytest
import torch

from cairn.losses.judgement import kl_baseline, kto

pytestmark = pytest.mark.unit

RATIO = [0.0, 2.0, -3.0, 0.7, 12.0]
GOOD = [True, True, True, False, False]


def ratio() -> torch.Tensor:
    return torch.tensor(RATIO, dtype=torch.float64)


def test_kto_is_its_formula_and_its_gradient():
    def formula(d: float, good: bool) -> float:
        x = 0.2 * (d - 1.5) if good else 0.2 * (1.5 - d)
        return (1.33 if good else 0.9) * (1 - 1 / (1 + math.exp(-x)))

    def loss(d: torch.Tensor) -> torch.Tensor:
        good = torch.tensor(GOOD)
        return kto(d, good, baseline=1.5, beta=0.2, desirable_weight=1.33, undesirable_weight=0.9)

    expected = [formula(d, good) for d, good in zip(RATIO, GOOD, strict=True)]
    torch.testing.assert_close(loss(ratio()), torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(loss, (ratio().requires_grad_(),))


def test_kto_starts_at_a_half_and_goes_the_right_way():
    both = torch.tensor([True, False])
    assert kto(torch.zeros(2), both, baseline=0.0, beta=0.1).tolist() == [0.5, 0.5]
    d = torch.linspace(-50, 50, 21)
    assert (kto(d, torch.ones(21, dtype=torch.bool), baseline=0.0, beta=0.1).diff() < 0).all()
    assert (kto(d, torch.zeros(21, dtype=torch.bool), baseline=0.0, beta=0.1).diff() > 0).all()


def test_kto_only_good_only_bad_or_nothing_stays_finite():
    far = torch.tensor([1e4, -1e4, 0.0], requires_grad=True)
    for good in (torch.ones(3, dtype=torch.bool), torch.zeros(3, dtype=torch.bool)):
        loss = kto(far, good, baseline=3.0, beta=0.5)
        (gradient,) = torch.autograd.grad(loss.sum(), far)
        assert loss.isfinite().all()
        assert gradient.isfinite().all()
    assert kto(far[:0], good[:0], baseline=0.0, beta=0.1).shape == (0,)


def test_the_baseline_is_never_below_zero_and_never_hides_a_fault():
    assert kl_baseline(6.0, 4) == 1.5
    assert kl_baseline(-6.0, 4) == 0.0
    with pytest.raises(ValueError, match="no mismatched answer"):
        kl_baseline(0.0, 0)
    with pytest.raises(ValueError, match="not finite"):
        kl_baseline(math.nan, 4)


@pytest.mark.parametrize("wrong", [{"beta": 0.0}, {"desirable_weight": -1.0}, {"undesirable_weight": -1.0}])
def test_what_has_no_meaning_is_refused(wrong: dict[str, float]):
    with pytest.raises(ValueError, match=r"beta|weights"):
        kto(ratio(), torch.tensor(GOOD), **{"baseline": 0.0, "beta": 0.1, **wrong})
