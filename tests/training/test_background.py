"""Evaluation in the background gives the figures of evaluation in the step, at the steps that they belong to."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from tests.training.runs import (
    losses,
    recipe_for,
    run_local,
    write_comparisons,
    write_conversations,
    write_documents,
)

from cairn.config.load import build, with_overrides
from cairn.errors import RecipeError
from cairn.training.background import EVALUATIONS
from cairn.training.folder import ADAPTER
from cairn.training.state import read_state

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("group")]

FIGURES = ("held_out_bpb", "held_out_loss")


@pytest.mark.parametrize("method", ["lora", pytest.param("full", marks=pytest.mark.full)])
def test_the_same_figures_at_the_same_steps(method: str, tmp_path: Path, tiny_path: Path) -> None:
    """Interrupted after a snapshot was taken: it is scored by the next start."""
    held_out = [write_conversations(tmp_path / "a.jsonl", 5), write_documents(tmp_path / "b.jsonl", 5)]
    recipe = recipe_for(
        tmp_path,
        tiny_path,
        "sft",
        adapter={"name": method},
        data={"validation": [str(path) for path in held_out]},
        training={"steps": 8, "evaluate_every": 2, "evaluate_documents": 6, "checkpoint_every": 2},
    )
    inline = run_local(recipe)
    elsewhere = with_overrides(recipe, {"training.evaluate_in_background": True, "storage.run": "elsewhere"})
    run_local(elsewhere, stop_after=2)
    assert [path.name for path in (elsewhere.run_path / EVALUATIONS).iterdir()] == ["step_00000002"]
    found = run_local(elsewhere)
    assert losses(found) == losses(inline)
    for name in FIGURES:
        at = {line["step"]: line[name] for line in found if name in line}
        assert list(at) == [2, 4, 6, 8]
        assert list(at.values()) == pytest.approx([line[name] for line in inline if name in line], rel=1e-5)
    assert not list((elsewhere.run_path / EVALUATIONS).iterdir())
    state = read_state(elsewhere.run_path)
    assert state["step"] == 8
    assert state["metrics"]["held_out_bpb"] == found[-1]["held_out_bpb"]


@pytest.mark.parametrize(
    ("stage", "method"),
    [
        ({"name": "dpo", "bco_weight": 0.5}, "lora"),
        pytest.param({"name": "dpo", "precompute_reference": True}, "full", marks=pytest.mark.full),
        pytest.param({"name": "kto"}, "lora", marks=pytest.mark.full),
        pytest.param({"name": "reward"}, "lora", marks=pytest.mark.full),
    ],
)
def test_a_reference_and_what_a_stage_remembers_are_there_too(
    stage: dict[str, Any], method: str, tmp_path: Path, tiny_path: Path
) -> None:
    held_out = write_comparisons(tmp_path / "held_out.jsonl", 6)
    figures = ("held_out_loss", "held_out_accuracy") if stage["name"] != "kto" else ("held_out_loss",)
    recipe = recipe_for(
        tmp_path,
        tiny_path,
        stage["name"],
        stage=stage,
        adapter={"name": method},
        data={"validation": [str(held_out)]},
        training={"steps": 4, "evaluate_every": 2, "checkpoint_every": 2},
    )
    inline = run_local(recipe)
    elsewhere = with_overrides(recipe, {"training.evaluate_in_background": True, "storage.run": "elsewhere"})
    found = run_local(elsewhere)
    assert [line["step"] for line in found if "held_out_loss" in line] == [2, 4]
    for name in figures:
        assert [line[name] for line in found if name in line] == pytest.approx(
            [line[name] for line in inline if name in line], rel=1e-5
        )
    assert inline[1]["held_out_loss"] != inline[3]["held_out_loss"]


def test_a_frozen_copy_of_the_adapter_that_training_went_on_from(tmp_path: Path, tiny_path: Path) -> None:
    """The held-out loss of DPO is log 2 only where the policy still is its reference."""
    first = recipe_for(tmp_path / "first", tiny_path, "sft", training={"steps": 2})
    run_local(first)
    held_out = write_comparisons(tmp_path / "held_out.jsonl", 6)
    recipe = recipe_for(
        tmp_path,
        tiny_path,
        "dpo",
        model={"path": str(tiny_path), "adapter": str(first.run_path / ADAPTER)},
        data={"validation": [str(held_out)]},
        optimizer={"name": "adamw", "learning_rate": 1e-12},
        training={"steps": 4, "evaluate_every": 2, "evaluate_in_background": True},
    )
    losses_held_out = [line["held_out_loss"] for line in run_local(recipe) if "held_out_loss" in line]
    assert losses_held_out == pytest.approx([math.log(2)] * 2, abs=1e-6)


def test_a_goal_cannot_wait(tmp_path: Path, tiny_path: Path) -> None:
    recipe = recipe_for(tmp_path, tiny_path)
    with pytest.raises(RecipeError, match="is known late"):
        build({**recipe.plain(), "training": {"evaluate_in_background": True, "best": {}}})
