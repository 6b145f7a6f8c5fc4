"""ORPO, SimPO and CPO equal their papers' formulas; a certain answer breaks neither their values nor their gradients."""

from __future__ import annotations

import math

import pytest
import torch

from cairn.losses.reference_free import cpo, log1mexp, log_odds, orpo, simpo

pytestmark = pytest.mark.unit

CHOSEN = [-12.0, -0.3, -40.0, -2.2]
REJECTED = [-15.0, -0.1, -90.0, -2.2]
CHOSEN_TOKENS = [6, 1, 10, 4]
REJECTED_TOKENS = [5, 2, 31, 4]
ROWS = list(zip(CHOSEN, REJECTED, CHOSEN_TOKENS, REJECTED_TOKENS, strict=True))
COUNTS = (torch.tensor(CHOSEN_TOKENS), torch.tensor(REJECTED_TOKENS))


def sums() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor(CHOSEN, dtype=torch.float64), torch.tensor(REJECTED, dtype=torch.float64)


def close(actual: torch.Tensor, expected: list[float]) -> None:
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)


def nats(margin: float) -> float:
    return math.log(1 + math.exp(-margin))


def test_orpo():
    def formula(c: float, r: float, n_c: int, n_r: int) -> float:
        p_c, p_r = math.exp(c / n_c), math.exp(r / n_r)
        odds_ratio = (p_c / (1 - p_c)) / (p_r / (1 - p_r))
        return -c / n_c + 0.2 * nats(math.log(odds_ratio))

    close(orpo(*sums(), *COUNTS, beta=0.2), [formula(*row) for row in ROWS])
    close(orpo(*sums(), *COUNTS, beta=0.0), [-c / n_c for c, _, n_c, _ in ROWS])


@pytest.mark.parametrize("s", [0.0, 0.2])
def test_simpo_and_cpo(s: float):
    def smoothed(margin: float) -> float:
        return (1 - s) * nats(margin) + s * nats(-margin)

    close(
        simpo(*sums(), *COUNTS, beta=2.0, gamma=0.5, label_smoothing=s),
        [smoothed(2.0 * (c / n_c - r / n_r - 0.5 / 2.0)) for c, r, n_c, n_r in ROWS],
    )
    close(
        cpo(*sums(), COUNTS[0], beta=0.1, sft_weight=0.7, label_smoothing=s),
        [smoothed(0.1 * (c - r)) + 0.7 * -c / n_c for c, r, n_c, _ in ROWS],
    )


@pytest.mark.parametrize(
    "loss",
    [
        lambda c, r: orpo(c, r, *COUNTS, beta=0.2),
        lambda c, r: simpo(c, r, *COUNTS, beta=2.0, gamma=0.5, label_smoothing=0.1),
        lambda c, r: cpo(c, r, COUNTS[0], beta=0.1, sft_weight=0.7),
        lambda c, r: log_odds(c) + log1mexp(r),
    ],
)
def test_gradients_are_finite_differences(loss):
    assert torch.autograd.gradcheck(loss, tuple(values.requires_grad_() for values in sums()), eps=1e-7, atol=1e-6)


def test_log1mexp_keeps_every_digit():
    x = torch.tensor([-1e-12, -1e-5, -0.5, -math.log(2), -0.7, -5.0, -40.0], dtype=torch.float64)
    close(log1mexp(x), [math.log(-math.expm1(v)) if v > -1 else math.log1p(-math.exp(v)) for v in x.tolist()])
    torch.testing.assert_close(log1mexp(x.float()).double(), log1mexp(x.float().double()), rtol=1e-6, atol=1e-9)
    narrow = torch.tensor([-1e-9, -1e-30, -1e4], requires_grad=True)
    log1mexp(narrow).sum().backward()
    torch.testing.assert_close(narrow.grad, torch.tensor([-1e9, -1e30, 0.0]))


def test_certain_and_impossible_answers_stay_finite():
    chosen, rejected = (
        grid.flatten().requires_grad_()
        for grid in torch.meshgrid(*[torch.tensor([0.0, 1e-9, -1e-9, -1e-7, -1e-3, -1e4])] * 2, indexing="ij")
    )
    one = torch.ones(len(chosen), dtype=torch.long)
    loss = orpo(chosen, rejected, one, one, beta=0.5)
    loss = loss + simpo(chosen, rejected, one, one, beta=2.0, gamma=1.0) + cpo(chosen, rejected, one, beta=0.5)
    loss.sum().backward()
    assert all(values.isfinite().all() for values in (loss, chosen.grad, rejected.grad))


def test_the_odds_of_a_certainty_are_capped_where_documented():
    eps = torch.finfo(torch.float32).eps
    odds = log_odds(torch.tensor([0.0, -eps, -2 * eps]))
    assert odds[0] == odds[1] > odds[2]
    assert odds[0].item() == pytest.approx(-math.log(eps), rel=1e-5)


def test_neither_an_empty_answer_nor_a_wrong_beta_passes():
    empty = torch.tensor([6, 0, 10, 4])
    with pytest.raises(ValueError, match=r"answers \[1\] have no token"):
        orpo(*sums(), empty, COUNTS[1], beta=0.1)
    with pytest.raises(ValueError, match=r"answers \[1\] have no token"):
        simpo(*sums(), COUNTS[0], empty, beta=2.0, gamma=0.5)
    for call in (
        lambda: orpo(*sums(), *COUNTS, beta=-0.1),
        lambda: simpo(*sums(), *COUNTS, beta=0.0, gamma=0.5),
        lambda: cpo(*sums(), COUNTS[0], beta=-1.0),
    ):
        with pytest.raises(ValueError, match="beta"):
            call()
