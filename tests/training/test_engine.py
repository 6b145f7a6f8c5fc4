"""The engine against plain torch, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from tests.training.engines import check_two_steps, make
from tests.training.toys import batch, masters_of, model

from cairn.data.batch import Batch
from cairn.errors import CairnError, UserError
from cairn.stages.sft import Sft
from cairn.training.engine import Engine

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("group")]


@pytest.mark.parametrize("zero_stage", [0, 2])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_two_steps_equal_plain_torch(precision: str, zero_stage: int) -> None:
    """The quick part of `test_zero_stages.py`."""
    check_two_steps(precision, zero_stage, accumulation=2)


@pytest.mark.parametrize("zero_stage", [0, 2])
def test_the_micro_batch_split_changes_nothing(zero_stage: int) -> None:
    rows = [batch(i, length=16) for i in range(4)]

    def stack(parts: list[Batch]) -> Batch:
        fields = {
            n: torch.cat([getattr(p, n) for p in parts])
            for n in ("tokens", "labels", "weights", "segments", "positions")
        }
        return Batch(**fields, sources=tuple(s for p in parts for s in p.sources))

    found = []
    for size in (1, 2, 4):
        engine = make("fp32", zero_stage, 4 // size)
        result = engine.step([stack(rows[i : i + size]) for i in range(0, 4, size)], Sft())
        found.append((result.loss.value, result.grad_norm))
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=1e-5)


def test_the_rate_follows_the_factor() -> None:
    engine = make("fp32", 0)
    before = masters_of(engine)
    assert engine.step([batch(1)], Sft(), rate_factor=0.0).learning_rate == 0.0
    assert all(torch.equal(before[name], master) for name, master in masters_of(engine).items())
    assert engine.step([batch(1)], Sft(), rate_factor=0.5).learning_rate == pytest.approx(0.5e-3)
    assert not all(torch.equal(before[name], master) for name, master in masters_of(engine).items())


def test_evaluation_changes_nothing_and_equals_the_loss() -> None:
    engine = make("fp32", 0)
    before = masters_of(engine)
    evaluated = engine.evaluate([batch(3), batch(4)], Sft())["loss"]
    assert all(torch.equal(before[name], master) for name, master in masters_of(engine).items())
    assert evaluated.weight == float(batch(3).weights.sum() + batch(4).weights.sum())
    assert engine.evaluate([batch(3)], Sft())["loss"].value == pytest.approx(engine.step([batch(3)], Sft()).loss.value)


def test_divergence_and_an_untrained_batch_are_said() -> None:
    engine = make("fp32", 0)
    nothing = batch(1)
    nothing.weights.zero_()
    with pytest.raises(CairnError, match="no token of the global batch is trained"):
        engine.step([nothing], Sft())
    with torch.no_grad():
        next(engine.model.parameters()).fill_(float("inf"))
    assert not engine.step([batch(1)], Sft()).applied


def test_nothing_to_train_and_what_cannot_be_offloaded_are_refused() -> None:
    policy = model("fp32").requires_grad_(False)
    with pytest.raises(UserError, match="no parameter"):
        Engine(policy, torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))]), accumulation=1)
    policy = model("fp32")
    with pytest.raises(UserError, match="SGD cannot be offloaded"):
        Engine(policy, torch.optim.SGD(policy.parameters()), accumulation=1, zero_stage=2, offload_optimizer=True)
