"""How a run ends: early, in time, with the best adapter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.training.runs import losses, recipe_for, run_local, write_documents

from cairn.config.load import with_overrides
from cairn.config.recipe import Recipe
from cairn.errors import UserError
from cairn.training.callbacks.best import BEST
from cairn.training.folder import ADAPTER, RUN, result_of
from cairn.training.state import FINISHED, STOPPED, read_state

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("group")]


def recipe_with(folder: Path, model: Path, **training: Any) -> Recipe:
    """12 steps over documents with some held out."""
    folder.mkdir(exist_ok=True)
    held_out = write_documents(folder / "held_out.jsonl", 6, offset=50)
    return recipe_for(
        folder, model, data={"validation": [str(held_out)]}, training={"steps": 12, "evaluate_documents": 4, **training}
    )


def weights_in(folder: Path) -> bytes:
    return (folder / "adapter_model.safetensors").read_bytes()


def test_the_best_adapter_is_the_result_and_survives_a_restart(tmp_path: Path, tiny_path: Path) -> None:
    """The gradient's norm goes up and down, so the step where it was greatest is neither the first nor the last."""
    found = []
    for name, stop_after in (("straight", None), ("stopped", 10)):
        goal = {"metric": "grad_norm", "mode": "max"}
        recipe = recipe_with(tmp_path / name, tiny_path, best=goal, checkpoint_every=4)
        if stop_after:
            run_local(recipe, stop_after=stop_after)
        best = max(run_local(recipe), key=lambda line: line["grad_norm"])
        state, run = read_state(recipe.run_path), json.loads((recipe.run_path / ADAPTER / RUN).read_text())
        assert best["step"] == state["adapter_step"] == run["step"]
        assert 1 < best["step"] < state["step"] == 12
        assert state["metrics"]["loss"] == run["metrics"]["loss"] == best["loss"]
        (kept,) = (recipe.run_path / BEST).iterdir()
        assert int(kept.name.removeprefix("step_")) == best["step"]
        assert weights_in(kept) == weights_in(recipe.run_path / ADAPTER)
        found.append(weights_in(kept))
    assert found[0] == found[1]


def test_a_run_ends_when_nothing_improves(tmp_path: Path, tiny_path: Path) -> None:
    """Nothing improves by 100 bits, so the run ends after the first reading and `patience` more."""
    goal = {"metric": "held_out_bpb", "patience": 2, "min_delta": 100.0}
    recipe = recipe_with(tmp_path, tiny_path, early_stopping=goal, evaluate_every=2, checkpoint_every=4)
    assert len(run_local(recipe, stop_after=5)) == 5
    lines = run_local(recipe)
    assert len(losses(lines)) == 6
    assert [line["step"] for line in lines if "held_out_bpb" in line] == [2, 4, 6]
    state = read_state(recipe.run_path)
    assert state["status"] == FINISHED
    assert "held_out_bpb has not improved" in state["ended"]
    assert result_of(recipe).steps == state["adapter_step"] == 6
    (recipe.run_path / "adapter").rename(recipe.run_path / "was lost")
    assert run_local(recipe) == lines
    assert weights_in(recipe.run_path / ADAPTER) == weights_in(recipe.run_path / "was lost")


def test_a_figure_that_does_not_exist_is_refused_at_the_first_evaluation(tmp_path: Path, tiny_path: Path) -> None:
    recipe = recipe_with(tmp_path, tiny_path, best={"metric": "held_out_bbp"}, evaluate_every=2)
    with pytest.raises(UserError, match="no step has the figure 'held_out_bbp'") as refused:
        run_local(recipe)
    assert "held_out_bpb" in refused.value.next_step
    assert read_state(recipe.run_path)["step"] == 1


def test_a_time_limit_pauses_and_the_same_recipe_goes_on(tmp_path: Path, tiny_path: Path) -> None:
    recipe = recipe_with(tmp_path, tiny_path, steps=5, max_seconds=1e-3)
    straight = losses(run_local(with_overrides(recipe, {"training.max_seconds": None, "storage.run": "straight"})))
    for step in (1, 2):
        assert losses(run_local(recipe)) == straight[:step]
        state = read_state(recipe.run_path)
        assert (state["status"], state["step"]) == (STOPPED, step)
        assert not (recipe.run_path / ADAPTER).exists()
        assert not result_of(recipe).finished
    assert losses(run_local(with_overrides(recipe, {"training.max_seconds": 1000.0}))) == straight
    assert read_state(recipe.run_path)["status"] == FINISHED
    assert result_of(recipe).finished
