"""Evaluation in the background gives the figures of evaluation in the step, at the steps that they belong to."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.training.runs import losses, recipe_for, run_local, write_conversations, write_documents

from cairn.config.load import build, with_overrides
from cairn.errors import RecipeError, UserError
from cairn.training.background import EVALUATIONS
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


def test_what_cannot_wait_is_refused(tmp_path: Path, tiny_path: Path) -> None:
    recipe = recipe_for(tmp_path, tiny_path, "dpo", training={"evaluate_in_background": True})
    with pytest.raises(UserError, match="compares with a reference model"):
        run_local(recipe)
    with pytest.raises(RecipeError, match="is known late"):
        build({**recipe.plain(), "training": {"evaluate_in_background": True, "best": {}}})
