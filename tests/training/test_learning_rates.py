"""The range test finds the slope it is given, and on a model a rate that trains; it leaves the run alone."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tests.training.runs import losses, recipe_for, run_local

from cairn.config.load import with_overrides
from cairn.data.pipeline import prepare_local
from cairn.training.learning_rates import HIGHEST, LOWEST, Sweep, Trial, suggestion, sweep, table
from cairn.training.local import LocalSession


def falling(turn: float) -> list[Trial]:
    """A loss that falls around log10(rate) = `turn`, as a sigmoid, and blows up near 1."""
    rates = [10 ** (-7 + i / 10) for i in range(70)]
    values = [3 - 2 / (1 + math.exp(-4 * (math.log10(rate) - turn))) + 1e3 * max(0.0, rate - 0.5) for rate in rates]
    return [Trial(rate, value, value) for rate, value in zip(rates, values, strict=True)]


@pytest.mark.unit
@pytest.mark.parametrize("turn", [-5.0, -3.0, -2.0])
def test_a_tenth_of_the_steepest(turn: float) -> None:
    found = suggestion(falling(turn))
    assert found is not None
    assert math.log10(found) == pytest.approx(turn - 1, abs=0.06)


@pytest.mark.unit
def test_what_never_falls_suggests_nothing() -> None:
    assert suggestion([Trial(10.0**i, 1.0 + i, 1.0 + i) for i in range(5)]) is None
    assert suggestion([Trial(1e-3, 1.0, 1.0)]) is None


@pytest.mark.unit
def test_it_is_kept_and_told(tmp_path: Path) -> None:
    found = Sweep(tuple(falling(-3.0)), 1e-4)
    found.save(tmp_path)
    assert Sweep.read(tmp_path) == found
    rows = table(found)
    assert len(rows) == 12
    assert rows[0] == ("1.00e-07", "3.0000")
    assert table(Sweep((), None)) == []


@pytest.mark.slow
@pytest.mark.usefixtures("group")
def test_on_a_model(tmp_path: Path, tiny_path: Path) -> None:
    recipe = recipe_for(tmp_path, tiny_path, optimizer={"name": "adamw", "learning_rate": 1e-4})
    data = prepare_local(recipe)
    found = sweep(recipe, data.train, data.validation, LocalSession(tmp_path / "no checkpoints"), steps=60)
    rates = [trial.learning_rate for trial in found.trials]
    assert rates[0] == pytest.approx(LOWEST)
    assert rates == sorted(rates)
    assert rates[-1] <= HIGHEST
    assert not recipe.run_path.exists()
    assert found.suggestion is not None
    assert 1e-5 < found.suggestion < 1e-1
    by_rate = [
        losses(run_local(with_overrides(recipe, {"optimizer.learning_rate": rate, "storage.run": f"r{rate}"})))
        for rate in (found.suggestion, 1e-7)
    ]
    assert by_rate[0][-1] < by_rate[1][-1]
