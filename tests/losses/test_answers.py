"""Sums and means of answers do not depend on the order of tokens among answers; LD-DPO weighs what sticks out."""

from __future__ import annotations

import math

import pytest
import torch

from cairn.losses.answers import answer_lengths, answer_sums, desensitised_weights, positions_within, token_means
from cairn.losses.preference import VARIANTS

pytestmark = pytest.mark.unit

ANSWER = torch.tensor([0, 0, 2, 2, 2, 2, 1, 1, 1, 3])
LOGPS = torch.tensor([-1.0, -2.0, -0.5, -0.25, -4.0, -8.0, -3.0, -1.0, -1.0, -7.0], dtype=torch.float64)


def test_sums_lengths_and_means():
    assert answer_sums(LOGPS, ANSWER, 5).tolist() == [-3.0, -5.0, -12.75, -7.0, 0.0]
    assert answer_lengths(ANSWER, 5).tolist() == [2, 3, 4, 1, 0]
    assert token_means(answer_sums(LOGPS, ANSWER, 4), answer_lengths(ANSWER, 4)).tolist() == [
        -1.5,
        -5 / 3,
        -3.1875,
        -7.0,
    ]
    with pytest.raises(ValueError, match=r"answers \[4\] have no token"):
        token_means(answer_sums(LOGPS, ANSWER, 5), answer_lengths(ANSWER, 5))


def test_sums_are_in_fp32_at_least_and_carry_the_gradient():
    narrow = torch.full((1000,), -0.01, dtype=torch.bfloat16, requires_grad=True)
    total = answer_sums(narrow, torch.zeros(1000, dtype=torch.long), 1)
    assert total.dtype == torch.float32
    assert total.item() == pytest.approx(1000 * narrow[0].item(), rel=1e-5)
    total.sum().backward()
    assert torch.equal(narrow.grad, torch.ones_like(narrow))
    assert torch.autograd.gradcheck(lambda v: answer_sums(v, ANSWER, 4), (LOGPS.clone().requires_grad_(),))


def test_positions_count_within_each_answer_even_when_interleaved():
    assert positions_within(ANSWER).tolist() == [0, 1, 0, 1, 2, 3, 0, 1, 2, 0]
    assert positions_within(torch.tensor([1, 0, 1, 3, 0, 1])).tolist() == [0, 0, 1, 0, 1, 2]
    assert positions_within(ANSWER[:0]).tolist() == []


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_desensitised_sums(alpha: float):
    """Answers 0 (two tokens) and 2 (four) are a pair, so are 1 (three) and 3 (one)."""
    shared = torch.tensor([2, 1, 2, 1])
    sums = answer_sums(LOGPS * desensitised_weights(ANSWER, shared, alpha=alpha), ANSWER, 4)
    expected = [-3.0, -3.0 + alpha * -2.0, -0.75 + alpha * -12.0, -7.0]
    torch.testing.assert_close(sums, torch.tensor(expected, dtype=torch.float64), rtol=1e-7, atol=1e-7)


def test_desensitised_dpo_starts_at_ln_2_when_the_reference_is_weighed_too():
    weights = desensitised_weights(ANSWER, torch.tensor([2, 1, 2, 1]), alpha=0.4)
    ratio = answer_sums(LOGPS * weights, ANSWER, 4) - answer_sums(LOGPS.clone() * weights, ANSWER, 4)
    loss = VARIANTS["sigmoid"](ratio[:2], ratio[2:], beta=0.1)
    assert loss.tolist() == pytest.approx([math.log(2)] * 2)


def test_alpha_is_a_share():
    with pytest.raises(ValueError, match="alpha"):
        desensitised_weights(ANSWER, torch.tensor([2, 1, 2, 1]), alpha=1.5)
