"""A pipeline is a list of ordinary recipes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cairn.config.load import load
from cairn.config.pipeline import load_steps
from cairn.errors import RecipeError, UserError

pytestmark = pytest.mark.unit

SHARED: dict[str, Any] = {
    "model": {"path": "base"},
    "adapter": {"name": "lora", "rank": 16},
    "optimizer": {"name": "adamw", "learning_rate": 1e-4, "weight_decay": 0.1},
    "storage": {"publish": "support", "run": "night"},
}


def written(folder: Path, *steps: Any, **sections: Any) -> Path:
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump({**SHARED, **sections, "pipeline": list(steps)}))
    return path


SFT = {"stage": {"name": "sft"}, "data": {"train": ["chats.jsonl"]}}
DPO = {
    "stage": {"name": "dpo", "beta": 0.2},
    "data": {"train": ["pairs.jsonl"]},
    "optimizer": {"learning_rate": 5e-7},
}


def test_steps_share_what_they_do_not_say(tmp_path: Path) -> None:
    sft, dpo = load_steps(written(tmp_path, SFT, DPO))
    assert (sft.stage.name, dpo.stage.name, dpo.stage.config.beta) == ("sft", "dpo", 0.2)
    assert (sft.optimizer.config.learning_rate, dpo.optimizer.config.learning_rate) == (1e-4, 5e-7)
    assert sft.optimizer.config.weight_decay == dpo.optimizer.config.weight_decay == 0.1
    assert sft.adapter.config.rank == dpo.adapter.config.rank == 16
    assert (sft.storage.publish, dpo.storage.publish) == ("support-sft", "support")
    assert (sft.storage.run, dpo.storage.run) == ("night-1-sft", "night-2-dpo")


def test_a_plain_recipe_is_one_step(tmp_path: Path) -> None:
    path = tmp_path / "plain.yaml"
    path.write_text(yaml.safe_dump({**SHARED, **SFT}))
    (step,) = load_steps(path, ["training.steps=7"])
    assert step.training.steps == 7
    assert step.storage.publish == "support"


def test_overrides_hold_for_every_step(tmp_path: Path) -> None:
    steps = load_steps(written(tmp_path, SFT, DPO), ["training.steps=7"])
    assert [step.training.steps for step in steps] == [7, 7]


def test_another_plugin_brings_its_own_keys(tmp_path: Path) -> None:
    full = {**DPO, "adapter": {"name": "full"}}
    assert load_steps(written(tmp_path, SFT, full))[1].adapter.name == "full"


def test_all_problems_of_all_steps_are_told_at_once(tmp_path: Path) -> None:
    bad = {"stage": {"name": "dpoo"}, "data": {"train": ["x"], "sequence_lenght": 3}}
    with pytest.raises(RecipeError) as caught:
        load_steps(written(tmp_path, SFT, bad, {"data": {"train": ["x"]}}))
    assert "pipeline.2.stage" in str(caught.value)
    with pytest.raises(RecipeError) as caught:
        load_steps(written(tmp_path, {**SFT, "training": {"steps": 0}}, bad))
    told = str(caught.value)
    assert all(
        path in told
        for path in ("pipeline.0.training.steps", "pipeline.1.stage.name", "pipeline.1.data.sequence_lenght")
    )


def test_a_result_needs_a_name(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"pipeline\.0\.storage\.publish"):
        load_steps(written(tmp_path, SFT, DPO, storage={}))


@pytest.mark.parametrize("steps", [[], "sft", ["sft"], [{"stage": "sft"}]])
def test_what_is_no_list_of_recipes_is_refused(steps: Any, tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(yaml.safe_dump({**SHARED, "pipeline": steps}))
    with pytest.raises(RecipeError, match="pipeline"):
        load_steps(path)


def test_a_command_for_one_stage_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a pipeline has several stages"):
        load(written(tmp_path, SFT))
