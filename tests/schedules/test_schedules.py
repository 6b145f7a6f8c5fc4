"""Schedules equal their closed forms, step by step."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from cairn.plugins import SCHEDULES

pytestmark = pytest.mark.unit


def factors(name: str, total: int, **config: object) -> list[float]:
    plugin = SCHEDULES.load(name)
    schedule = plugin(plugin.Config.parse(config))
    return [schedule.factor(step, total) for step in range(total)]


def test_constant_warms_up_then_stays():
    assert factors("constant", 6, warmup_steps=3) == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])


def test_linear_falls_to_its_floor_one_step_after_the_last():
    assert factors("linear", 4, warmup_steps=0) == pytest.approx([1, 0.75, 0.5, 0.25])
    assert factors("linear", 4, warmup_steps=0, floor=0.2) == pytest.approx([1, 0.8, 0.6, 0.4])


def test_cosine_is_half_a_cosine_above_its_floor():
    wanted = [0.1 + 0.9 * (1 + math.cos(math.pi * step / 8)) / 2 for step in range(8)]
    assert factors("cosine", 10, warmup_steps=2, floor=0.1) == pytest.approx([1 / 3, 2 / 3, *wanted])


def test_warmup_fraction_counts_steps_and_steps_override_it():
    assert factors("constant", 100, warmup_fraction=0.1).index(1.0) == 10
    assert factors("constant", 100, warmup_fraction=0.1, warmup_steps=5).index(1.0) == 5


@pytest.mark.parametrize("name", SCHEDULES.names())
def test_factor_stays_between_zero_and_one_even_past_the_end(name):
    plugin = SCHEDULES.load(name)
    values = [plugin().factor(step, 20) for step in range(25)]
    assert all(0 <= value <= 1 for value in values)
    assert max(values) == 1.0


@pytest.mark.parametrize("name", SCHEDULES.names())
def test_a_warm_up_longer_than_the_run_only_rises(name):
    values = factors(name, 4, warmup_steps=10)
    assert values == pytest.approx([0.2, 0.4, 0.6, 0.8])


def test_wrong_values_are_refused():
    config = SCHEDULES.load("cosine").Config
    for wrong in ({"floor": 2}, {"warmup_fraction": -0.1}, {"warmup_steps": "3"}, {"flor": 0.1}):
        with pytest.raises(ValidationError):
            config.parse(wrong)
