"""KL, reverse KL and JSD equal sums over the vocabulary in float64, and no gradient reaches the teacher."""

from __future__ import annotations

import math

import pytest
import torch

from cairn.losses.distillation import distillation

pytestmark = pytest.mark.unit

STUDENT = [[0.5, -1.0, 2.0, 0.0], [0.0, 0.0, 0.0, 0.0], [3.0, 1.0, -2.0, 0.5]]
TEACHER = [[1.5, 0.0, -1.0, 0.3], [0.0, 0.0, 0.0, 0.0], [-3.0, 1.0, 4.0, 0.5]]


def softmax(logits: list[float], temperature: float) -> list[float]:
    powers = [math.exp(x / temperature) for x in logits]
    return [p / sum(powers) for p in powers]


def kl(p: list[float], q: list[float]) -> float:
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


def formula(student: list[float], teacher: list[float], temperature: float, beta: float) -> float:
    s, t = softmax(student, temperature), softmax(teacher, temperature)
    if beta == 0:
        return temperature**2 * kl(t, s)
    if beta == 1:
        return temperature**2 * kl(s, t)
    m = [beta * b + (1 - beta) * a for a, b in zip(s, t, strict=True)]
    return temperature**2 * (beta * kl(t, m) + (1 - beta) * kl(s, m))


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_a_divergence_is_its_formula_and_its_gradient(temperature: float, beta: float):
    student, teacher = torch.tensor(STUDENT, dtype=torch.float64), torch.tensor(TEACHER, dtype=torch.float64)
    loss = distillation(student, teacher, temperature=temperature, beta=beta)
    expected = [formula(s, t, temperature, beta) for s, t in zip(STUDENT, TEACHER, strict=True)]
    torch.testing.assert_close(loss, torch.tensor(expected, dtype=torch.float64), rtol=1e-11, atol=1e-12)
    assert torch.autograd.gradcheck(
        lambda s: distillation(s, teacher, temperature=temperature, beta=beta), (student.requires_grad_(),)
    )


def test_the_teacher_is_not_trained():
    student, teacher = torch.randn(2, 3, 8).requires_grad_().unbind()
    (gradient,) = torch.autograd.grad(distillation(student, teacher).sum(), teacher, allow_unused=True)
    assert gradient is None


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_sure_models_and_entries_that_neither_can_say_stay_finite(beta: float):
    student = torch.tensor([[1e4, 0.0, -torch.inf], [0.0, 1.0, -torch.inf]], requires_grad=True)
    teacher = torch.tensor([[0.0, 1e4, -torch.inf], [1.0, 0.0, -torch.inf]])
    loss = distillation(student, teacher, beta=beta)
    loss.sum().backward()
    assert loss.isfinite().all()
    assert student.grad.isfinite().all()


def test_bf16_logits_are_compared_in_fp32():
    loss = distillation(torch.randn(3, 8).bfloat16(), torch.randn(3, 8).bfloat16())
    assert loss.dtype == torch.float32
    assert (loss >= 0).all()


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [(5, {}, "one vocabulary"), (4, {"temperature": 0.0}, "temperature"), (4, {"beta": 1.5}, "beta")],
)
def test_what_has_no_meaning_is_refused(columns: int, options: dict[str, float], message: str):
    with pytest.raises(ValueError, match=message):
        distillation(torch.zeros(2, 4), torch.zeros(2, columns), **options)
