"""The engine over a tiny model, and its two steps against plain torch; used by several test files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.training.toys import CLIP, adamw, batch, masters_of, model, plain_steps, update_error

from cairn.data.batch import Batch
from cairn.stages.sft import Sft
from cairn.training.engine import Engine

EXACT = 1e-4
"""Of the update's norm. Adam's first update is a sign, so rounding shows most where a gradient is about zero."""


def make(precision: str, zero_stage: int, accumulation: int = 1, **config: object) -> Engine:
    """An engine over the tiny model."""
    return engine_over(model(precision, **config), precision, zero_stage, accumulation)


def engine_over(policy: Any, precision: str, zero_stage: int, accumulation: int = 1) -> Engine:
    """An engine over any model."""
    return Engine(
        policy,
        adamw(policy.parameters()),
        accumulation=accumulation,
        precision=precision,
        zero_stage=zero_stage,
        max_grad_norm=CLIP,
    )


def steps_of(accumulation: int, count: int = 2) -> list[list[Batch]]:
    """`count` steps of `accumulation` micro-batches of unequal weight."""
    return [[batch(100 * s + i, length=12 + 4 * i) for i in range(accumulation)] for s in range(count)]


def check_two_steps(precision: str, zero_stage: int, *, accumulation: int, model: Callable[[str], Any] = model) -> None:
    """Masters after the first and the second step, losses, norms, and that working copies are rounded masters."""
    start = {name: p.detach().float().clone() for name, p in model(precision).named_parameters()}
    steps = steps_of(accumulation)
    first, *_ = plain_steps(model(precision), Sft(), steps[:1])
    both, losses, norms = plain_steps(model(precision), Sft(), steps)

    engine = engine_over(model(precision), precision, zero_stage, accumulation)
    results = [engine.step(steps[0], Sft())]
    assert update_error(masters_of(engine), first, start) < EXACT
    results.append(engine.step(steps[1], Sft()))
    assert update_error(masters_of(engine), both, start) < EXACT

    assert [r.loss.value for r in results] == pytest.approx(losses, rel=1e-5)
    assert [r.grad_norm for r in results] == pytest.approx(norms, rel=1e-5)
    with engine.whole() as whole:
        rounded = {name: p.detach().float().clone() for name, p in whole.named_parameters()}
    for name, master in masters_of(engine).items():
        assert torch.equal(rounded[name], master.to(torch.bfloat16).float() if precision == "bf16" else master), name
