"""SFT, then a reward model and DPO, as one job that may stop anywhere."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.training.runs import run_local, write_comparisons, write_conversations

from cairn.config.pipeline import load_steps
from cairn.config.recipe import Recipe
from cairn.training.folder import TrainingResult, claim, publish, result_of
from cairn.training.pipeline import carry_out
from cairn.training.start import pinned
from cairn.training.trackers.jsonl import read_metrics

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("group")]


class Trained:
    """Trains here, and counts the steps that were really done. `stop_at`: dies in that run after its second step."""

    def __init__(self, *, stop_at: str | None = None) -> None:
        self.stop_at, self.seen = stop_at, list[tuple[str, str | None]]()

    def __call__(self, recipe: Recipe) -> TrainingResult:
        recipe = pinned(recipe)
        self.seen.append((recipe.stage.name, recipe.model.adapter))
        if claim(recipe) is None:
            run_local(recipe, stop_after=2 if recipe.stage.name == self.stop_at else None)
            if recipe.stage.name == self.stop_at:
                raise KeyboardInterrupt
        publish(recipe)
        return result_of(recipe)


def steps_in(folder: Path, model: Path) -> list[Recipe]:
    values: dict[str, Any] = {
        "model": {"path": str(model)},
        "data": {"sequence_length": 128},
        "adapter": {"name": "lora", "rank": 4},
        "optimizer": {"name": "adamw", "learning_rate": 5e-3},
        "training": {"steps": 4, "global_batch": 4, "precision": "fp32", "checkpoint_every": 1},
        "storage": {"path": str(folder / "storage"), "publish": "helper"},
        "pipeline": [
            {"stage": {"name": "sft"}, "data": {"train": [str(write_conversations(folder / "chats.jsonl", 20))]}},
            {"stage": {"name": "reward"}, "data": {"train": [str(write_comparisons(folder / "pairs.jsonl", 20))]}},
            {"stage": {"name": "dpo"}, "data": {"train": [str(folder / "pairs.jsonl")]}},
        ],
    }
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump(values))
    return load_steps(path)


def test_each_step_goes_on_from_the_last_that_speaks_and_a_stopped_one_is_taken_up(
    tmp_path: Path, tiny_path: Path
) -> None:
    steps = steps_in(tmp_path, tiny_path)
    with pytest.raises(KeyboardInterrupt):
        carry_out(steps, Trained(stop_at="dpo"))
    again = Trained()
    results = carry_out(steps, again)
    assert again.seen == [("sft", None), ("reward", "helper-sft@1"), ("dpo", "helper-sft@1")]
    assert [result.published for result in results] == ["helper-sft@1", "helper-reward@1", "helper@1"]
    logged = read_metrics(results[2].run_path)
    assert [line["step"] for line in logged] == [1, 2, 3, 4]
    assert logged[0]["loss"] == pytest.approx(math.log(2), rel=1e-5)
    card = json.loads((tmp_path / "storage/adapters/helper/1/card.json").read_text())
    assert (card["stage"], card["parent"]) == ("dpo", "helper-sft@1")
