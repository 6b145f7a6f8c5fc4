"""How far a student's next-token distribution is from a teacher's: KL, reverse KL, and Jensen–Shannon between them.

All over the whole vocabulary at temperature T and times T², which keeps the gradient's size when T changes (Hinton et
al. 2015). No gradient reaches the teacher. Costs three fp32 tensors of the logits' size, so hand in wanted positions.
"""

from __future__ import annotations

import math

import torch

from cairn.losses.precision import widen


def distillation(
    student_logits: torch.Tensor, teacher_logits: torch.Tensor, *, temperature: float = 1.0, beta: float = 0.0
) -> torch.Tensor:
    """T² · D(teacher, student) per position in nats, fp32 [n] (float64 for float64 logits).

    Both logits: [n, vocabulary]. With t and s the softmax of logits/T and m = beta·t + (1 − beta)·s, D is

    - beta = 0: KL(t ‖ s), the forward KL of Hinton et al. 2015: the student covers all that the teacher may say
    - beta = 1: KL(s ‖ t), the reverse KL: the student keeps to what the teacher finds likely
    - between: beta·KL(t ‖ m) + (1 − beta)·KL(s ‖ m), the generalised JSD of Agarwal et al. 2024 (GKD, eq. 1)

    Raises ValueError for T ≤ 0, beta outside [0, 1], or vocabularies of two sizes.
    """
    if student_logits.shape != teacher_logits.shape:
        raise ValueError(
            f"student logits are {list(student_logits.shape)}, teacher logits {list(teacher_logits.shape)}: "
            "distillation needs the same positions and one vocabulary"
        )
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}: take a temperature above 0")
    if not 0.0 <= beta <= 1.0:
        raise ValueError(f"beta is {beta}: take 0 (forward KL) to 1 (reverse KL)")
    student = _log_probabilities(student_logits, temperature)
    teacher = _log_probabilities(teacher_logits.detach(), temperature)
    return temperature**2 * _divergence(student, teacher, beta)


def _log_probabilities(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Finite where logits are −inf: what neither model can say then adds 0, in the gradient too."""
    log_p = torch.log_softmax(widen(logits) / temperature, dim=-1)
    return log_p.clamp(min=torch.finfo(log_p.dtype).min)


def _divergence(student: torch.Tensor, teacher: torch.Tensor, beta: float) -> torch.Tensor:
    if beta == 0.0:
        return _kl(teacher, student)
    if beta == 1.0:
        return _kl(student, teacher)
    mixture = torch.logaddexp(teacher + math.log(beta), student + math.log1p(-beta))
    return beta * _kl(teacher, mixture) + (1.0 - beta) * _kl(student, mixture)


def _kl(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """KL(p ‖ q) of log-probabilities [n, vocabulary]."""
    return (p.exp() * (p - q)).sum(dim=-1)
