"""Draws are seeded, typed and checked; the plan refuses another search under its name; ranking puts the best first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cairn.config.load import build, with_overrides
from cairn.config.recipe import Recipe
from cairn.errors import RecipeError, UserError
from cairn.search.space import draw
from cairn.search.table import flat_rows, ranked, read_plan, write_plan
from cairn.search.trial import trial_recipe

pytestmark = pytest.mark.unit

SPACE = {
    "adapter.rank": {"low": 2, "high": 16},
    "optimizer.learning_rate": {"low": 1e-5, "high": 1e-2, "log": True},
    "training.seed": {"choices": [0, 1]},
}


def recipe_of(storage: Path, **search: Any) -> Recipe:
    """A recipe that needs no files."""
    return build(
        {
            "model": {"path": "/models/none"},
            "data": {"train": ["/data/none.json"]},
            "stage": {"name": "sft"},
            "training": {"steps": 9, "log_every": 3},
            "search": {"space": SPACE, "trials": 40, **search},
            "storage": {"path": str(storage), "publish": "best", "run": "s"},
        }
    )


def test_draws_are_repeatable_and_within_their_axes(tmp_path: Path) -> None:
    drawn = draw(recipe_of(tmp_path))
    assert drawn == draw(recipe_of(tmp_path))
    assert drawn != draw(recipe_of(tmp_path, seed=1))
    ranks = {changes["adapter.rank"] for changes in drawn}
    assert all(type(rank) is int and 2 <= rank <= 16 for rank in ranks)
    assert len(ranks) > 5
    rates = [changes["optimizer.learning_rate"] for changes in drawn]
    assert all(1e-5 <= rate <= 1e-2 for rate in rates)
    assert 8 <= sum(rate < 10**-3.5 for rate in rates) <= 32, "log-uniform: half lie below the geometric mean"
    assert {changes["training.seed"] for changes in drawn} == {0, 1}


@pytest.mark.parametrize(
    ("key", "axis", "message"),
    [
        ("adapter.rnk", {"choices": [1]}, "did you mean 'rank'"),
        ("adaptr.rank", {"choices": [1]}, "did you mean 'adapter'"),
        ("storage.path", {"choices": ["/x"]}, "the search's own"),
        ("adapter.rank", {"choices": [4, -3]}, "adapter.rank = -3"),
        ("training.global_batch", {"choices": ["eight"]}, "training.global_batch"),
    ],
)
def test_a_bad_axis_is_refused_before_any_trial(key: str, axis: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=message):
        draw(recipe_of(tmp_path, space={key: axis}))


def test_an_empty_space_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="nothing to search"):
        draw(recipe_of(tmp_path, space={}))


def test_a_trial_is_an_ordinary_run_in_the_search_folder(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path)
    trial = trial_recipe(recipe, tmp_path / "searches" / "s", 3, {"adapter.rank": 5})
    assert trial.run_path == tmp_path / "searches" / "s" / "runs" / "trial_03"
    assert trial.storage.publish is None
    assert trial.adapter.config.rank == 5
    assert trial.training.checkpoint_every == 3, "a checkpoint with every logged step"
    kept = with_overrides(recipe, {"training.checkpoint_every": 4})
    assert trial_recipe(kept, tmp_path, 0, {}).training.checkpoint_every == 4


def test_another_search_under_an_old_name_is_refused(tmp_path: Path) -> None:
    recipe, folder = recipe_of(tmp_path), tmp_path / "searches" / "s"
    write_plan(folder, recipe, draw(recipe))
    before = (folder / "search.json").read_bytes()
    write_plan(folder, recipe, draw(recipe))
    for change in ({"search.seed": 7}, {"search.mode": "max"}, {"training.steps": 10}):
        other = with_overrides(recipe, change)
        with pytest.raises(UserError, match="another name"):
            write_plan(folder, other, draw(other))
    assert (folder / "search.json").read_bytes() == before
    plan = read_plan(folder)
    assert plan is not None
    assert (plan["trials"], plan["steps"], len(plan["draws"])) == (40, 9, 40)


def test_ranking_puts_the_best_first_and_the_unmeasured_last() -> None:
    rows = [
        {"id": f"trial_{i}", "status": "finished", "step": 9, "value": value, "parameters": {"adapter.rank": i}}
        for i, value in enumerate((2.0, None, 1.0, 2.0))
    ]
    assert [row["id"] for row in ranked(rows, "min")] == ["trial_2", "trial_0", "trial_3", "trial_1"]
    assert [row["id"] for row in ranked(rows, "max")] == ["trial_0", "trial_3", "trial_2", "trial_1"]
    first = flat_rows(ranked(rows, "min"), "loss")[0]
    assert first == {"rank": 1, "trial": "trial_2", "status": "finished", "step": 9, "loss": 1.0, "adapter.rank": 2}
    assert json.dumps(rows)
