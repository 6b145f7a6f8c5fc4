"""The engine at every ZeRO stage, precision and accumulation, in one process: parity, moving state, resuming."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.training.engines import check_two_steps, make, steps_of
from tests.training.toys import masters_of

from cairn.stages.sft import Sft

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("group")]


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_two_steps_equal_plain_torch(precision: str, zero_stage: int, accumulation: int) -> None:
    check_two_steps(precision, zero_stage, accumulation=accumulation)


def test_a_tied_weight_in_bf16_agrees_across_stages() -> None:
    """Its two gradients meet in bf16 or in fp32, depending on the stage: 2e-3 is what the design allows."""
    losses = []
    for zero_stage in (0, 1, 2, 3):
        engine = make("bf16", zero_stage, 2, tie_word_embeddings=True)
        losses.append([engine.step(step, Sft()).loss.value for step in steps_of(2, 3)])
    for found in losses[1:]:
        assert found == pytest.approx(losses[0], rel=2e-3)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_state_moves_between_stages_bit_for_bit(precision: str, tmp_path: Path) -> None:
    """Save at one stage, load at the next: masters, both moments and the step count are the same bits."""
    steps = steps_of(1, 5)
    source = make(precision, 0)
    for step in steps[:2]:
        source.step(step, Sft())
    source.save(tmp_path)
    for zero_stage in (0, 1, 2, 3):
        engine = make(precision, zero_stage)
        engine.load(tmp_path)
        again = tmp_path / str(zero_stage)
        again.mkdir()
        engine.save(again)
        for name in ("optimizer.safetensors", "optimizer.json"):
            assert (again / name).read_bytes() == (tmp_path / name).read_bytes(), (zero_stage, name)


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_resuming_is_bitwise(precision: str, zero_stage: int, tmp_path: Path) -> None:
    steps = steps_of(1, 4)
    straight = make(precision, zero_stage)
    losses = [straight.step(step, Sft()).loss.value for step in steps]
    first = make(precision, zero_stage)
    for step in steps[:2]:
        first.step(step, Sft())
    first.save(tmp_path)
    second = make(precision, zero_stage)
    second.load(tmp_path)
    assert [second.step(step, Sft()).loss.value for step in steps[2:]] == losses[2:]
    for name, master in masters_of(straight).items():
        assert torch.equal(master, masters_of(second)[name]), name
