"""Every variant of DPO equals its paper's formula in float64, element by element, and its gradient finite differences."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from cairn.losses.preference import VARIANTS, logistic, sft_term, with_bco

pytestmark = pytest.mark.unit

CHOSEN = [0.0, 1.3, -2.1, 7.5, -0.4, 30.0]
REJECTED = [0.0, -0.7, 1.9, 7.9, -6.2, -25.0]
BETA = 0.3


def σ(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def log(x: float) -> float:
    return math.log(x)


# Of d_c, d_r, β, the smoothing s and the running reward δ, as the papers write them.
FORMULAS: dict[str, Callable[[float, float, float, float, float], float]] = {
    "sigmoid": lambda c, r, b, s, δ: -(1 - s) * log(σ(b * (c - r))) - s * log(σ(-b * (c - r))),
    "sigmoid_norm": lambda c, r, b, s, δ: -(1 - s) * log(σ(b * (c - r))) - s * log(σ(-b * (c - r))),
    "robust": lambda c, r, b, s, δ: (-(1 - s) * log(σ(b * (c - r))) + s * log(σ(-b * (c - r)))) / (1 - 2 * s),
    "hinge": lambda c, r, b, s, δ: max(0.0, 1 - b * (c - r)),
    "ipo": lambda c, r, b, s, δ: ((c - r) - 1 / (2 * b)) ** 2,
    "exo": lambda c, r, b, s, δ: (
        σ(b * (c - r)) * (log(σ(b * (c - r))) - log(1 - s)) + σ(b * (r - c)) * (log(σ(b * (r - c))) - log(s))
    ),
    "bco": lambda c, r, b, s, δ: -log(σ(b * c - δ)) - log(σ(-(b * r - δ))),
    "nca": lambda c, r, b, s, δ: -log(σ(b * c)) - 0.5 * log(σ(-b * c)) - 0.5 * log(σ(-b * r)),
    "sppo_hard": lambda c, r, b, s, δ: (c - 1 / (2 * b)) ** 2 + (r + 1 / (2 * b)) ** 2,
    "apo_zero": lambda c, r, b, s, δ: 1 - σ(b * c) + σ(b * r),
    "apo_down": lambda c, r, b, s, δ: σ(b * c) + 1 - σ(b * (c - r)),
    "discopop": lambda c, r, b, s, δ: (
        (1 - σ(b * (c - r) / 0.05)) * -log(σ(b * (c - r))) + σ(b * (c - r) / 0.05) * math.exp(-b * (c - r))
    ),
}
SMOOTHED = {"sigmoid", "sigmoid_norm", "robust", "exo"}
CASES = [(name, s, δ) for name in FORMULAS for s in (0.0, 0.1) for δ in (0.0, 0.8)]
CASES = [(name, s, δ) for name, s, δ in CASES if (s == 0 or name in SMOOTHED) and (δ == 0 or name == "bco")]
CASES.remove(("exo", 0.0, 0.0))


def ratios() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor(CHOSEN, dtype=torch.float64), torch.tensor(REJECTED, dtype=torch.float64)


def test_every_variant_has_a_formula_here():
    assert set(FORMULAS) == set(VARIANTS)
    assert {name for name, variant in VARIANTS.items() if "label_smoothing" in variant.options} == SMOOTHED
    assert {name for name, variant in VARIANTS.items() if "delta" in variant.options} == {"bco"}
    assert {name for name, variant in VARIANTS.items() if variant.per_token} == {"ipo", "sigmoid_norm"}


@pytest.mark.parametrize(("name", "s", "delta"), CASES)
def test_a_variant_is_its_formula_and_its_gradient(name: str, s: float, delta: float):
    chosen, rejected = ratios()
    loss = VARIANTS[name](chosen, rejected, beta=BETA, label_smoothing=s, delta=delta)
    expected = [FORMULAS[name](c, r, BETA, s, delta) for c, r in zip(CHOSEN, REJECTED, strict=True)]
    torch.testing.assert_close(loss, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)

    inputs = (chosen[:5].requires_grad_(), rejected[:5].requires_grad_())
    assert torch.autograd.gradcheck(
        lambda c, r: VARIANTS[name](c, r, beta=BETA, label_smoothing=s, delta=delta), inputs, eps=1e-6, atol=1e-7
    )


@pytest.mark.parametrize("name", VARIANTS)
def test_a_pair_does_not_see_its_neighbours(name: str):
    chosen, rejected = ratios()
    order = torch.tensor([4, 0, 5, 2, 1, 3])
    s = 0.1 if name in SMOOTHED else 0.0
    together = VARIANTS[name](chosen, rejected, beta=BETA, label_smoothing=s)
    assert torch.equal(VARIANTS[name](chosen[order], rejected[order], beta=BETA, label_smoothing=s), together[order])
    assert VARIANTS[name](chosen[:0], rejected[:0], beta=BETA, label_smoothing=s).shape == (0,)


@pytest.mark.parametrize("name", sorted(set(VARIANTS) - {"ipo", "sppo_hard", "exo", "apo_down", "nca", "discopop"}))
def test_a_wider_margin_costs_less(name: str):
    d = torch.linspace(-20, 20, 41, dtype=torch.float64)
    assert (VARIANTS[name](d, -d, beta=BETA).diff() <= 0).all()


def test_dpo_starts_at_ln_2_and_ipo_pulls_to_its_margin():
    zero = torch.zeros(3)
    torch.testing.assert_close(VARIANTS["sigmoid"](zero, zero, beta=0.1), torch.full((3,), math.log(2)))
    torch.testing.assert_close(
        VARIANTS["sigmoid"](zero, zero, beta=0.1, label_smoothing=0.2), torch.full((3,), math.log(2))
    )
    assert VARIANTS["ipo"](torch.tensor([5.0]), torch.tensor([0.0]), beta=0.1).item() == 0.0


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_extremes_are_finite_in_fp32(name: str, dtype: torch.dtype):
    far = torch.tensor([1e4, -1e4, 0.0])
    chosen, rejected = (grid.flatten().to(dtype).requires_grad_() for grid in torch.meshgrid(far, far, indexing="ij"))
    s = 0.1 if name in SMOOTHED else 0.0
    loss = VARIANTS[name](chosen, rejected, beta=0.5, label_smoothing=s)
    loss.sum().backward()
    assert loss.dtype == torch.float32
    assert all(values.isfinite().all() for values in (loss, chosen.grad, rejected.grad))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("exo", {}),
        ("exo", {"label_smoothing": 0.6}),
        ("robust", {"label_smoothing": 0.5}),
        ("sigmoid", {"label_smoothing": 0.6}),
        ("sigmoid", {"label_smoothing": -0.1}),
        ("sigmoid", {"beta": 0.0}),
        ("sigmoid", {"beta": math.nan}),
        ("hinge", {"label_smoothing": 0.1}),
        ("apo_zero", {"delta": 0.1}),
    ],
)
def test_what_has_no_meaning_is_refused(name: str, options: dict[str, float]):
    field = next(iter(options), "label_smoothing")
    with pytest.raises(ValueError, match=field):
        VARIANTS[name](*ratios(), **{"beta": 0.1, **options})


def test_label_smoothing_of_a_half_says_nothing_about_the_winner():
    margin = torch.tensor([-3.0, 0.5, 8.0], dtype=torch.float64)
    torch.testing.assert_close(logistic(margin, 0.5), logistic(-margin, 0.5), rtol=1e-12, atol=0)


def test_sft_and_bco_terms():
    chosen = torch.tensor([-6.0, -1.0], dtype=torch.float64)
    assert sft_term(chosen, torch.tensor([4, 1])).tolist() == [1.5, 1.0]
    loss, bco = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 0.0])
    assert with_bco(loss, bco, weight=0.0).tolist() == [1.0, 2.0]
    assert with_bco(loss, bco, weight=1.0).tolist() == [2.0, 1.0]
    with pytest.raises(ValueError, match="weight"):
        with_bco(loss, bco, weight=-1.0)
    with pytest.raises(ValueError, match="no token"):
        sft_term(chosen, torch.tensor([4, 0]))
