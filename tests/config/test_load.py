"""The recipe: read, overridden, checked, fingerprinted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cairn.config.load import build, load, with_overrides
from cairn.config.pipeline import load_steps
from cairn.errors import RecipeError, UserError

pytestmark = pytest.mark.unit

RECIPES = sorted((Path(__file__).resolve().parents[2] / "jobs" / "recipes").glob("*.yaml"))
VALUES = {
    "model": {"path": "some/model"},
    "data": {"train": ["a.jsonl"]},
    "stage": {"name": "sft"},
    "adapter": {"name": "lora", "rank": 4},
    "optimizer": {"name": "adamw", "learning_rate": 1e-3},
    "training": {"steps": 3},
}
YAML = """
model: {path: some/model}
data:
  train: [a.jsonl]
stage: sft
adapter: {name: lora, rank: 4}
optimizer: {name: adamw, learning_rate: 1e-3}
training: {steps: 3}
"""


def problems_of(values: dict[str, object]) -> dict[str, str]:
    with pytest.raises(RecipeError) as caught:
        build(values)
    return {problem.path: problem.advice for problem in caught.value.problems}


def test_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(YAML)
    (tmp_path / "r.json").write_text(json.dumps(VALUES))
    from_yaml, from_json = load(tmp_path / "r.yaml"), load(tmp_path / "r.json")
    assert from_yaml.plain() == from_json.plain()
    assert from_yaml.optimizer.config.learning_rate == pytest.approx(1e-3)


def test_overrides_set_keys_with_yaml_values(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(YAML)
    recipe = load(
        tmp_path / "r.yaml",
        ["training.steps=7", "optimizer.learning_rate=5e-4", "data.train=[b.jsonl, c.jsonl]", "storage.run=mine"],
    )
    assert recipe.training.steps == 7
    assert recipe.optimizer.config.learning_rate == 5e-4
    assert recipe.data.train == ("b.jsonl", "c.jsonl")
    assert recipe.run_name == "mine"


@pytest.mark.parametrize(
    ("override", "path", "advice"),
    [
        ("training.stpes=3", "training.stpes", "did you mean 'steps'?"),
        ("trainng.steps=3", "trainng.steps", "did you mean 'training'?"),
        ("training.steps", "training.steps", "write for example training.steps=20"),
        ("training.steps.more=3", "training.steps.more", "shorten the path"),
    ],
)
def test_a_wrong_override_names_the_nearest(tmp_path: Path, override: str, path: str, advice: str) -> None:
    (tmp_path / "r.yaml").write_text(YAML)
    with pytest.raises(RecipeError) as caught:
        load(tmp_path / "r.yaml", [override])
    assert [(problem.path, problem.advice) for problem in caught.value.problems] == [(path, advice)]


def test_all_problems_come_at_once() -> None:
    found = problems_of(
        {
            "modle": {},
            "model": {"path": 3},
            "data": {"train": []},
            "stage": {"name": "stf"},
            "training": {"zero_stage": 4, "global_batch": -1},
        }
    )
    assert set(found) == {
        "modle", "model.path", "data.train", "stage.name", "training.zero_stage", "training.global_batch",
    }  # fmt: skip
    assert found["modle"] == "did you mean 'model'?"
    assert found["stage.name"] == "did you mean 'sft'?"


@pytest.mark.parametrize(
    ("training", "path"),
    [
        ({"global_batch": 3, "workers": 2}, "training.global_batch"),
        ({"offload_optimizer": True}, "training.offload_optimizer"),
        ({"trackers": ["jsnl"]}, "training.trackers.0.name"),
        ({"workers": 0}, "training.workers"),
        ({"workers": "two"}, "training.workers"),
        ({"workers": {"min": 0, "max": 2}}, "training.workers.min"),
        ({"workers": {"min": 3, "max": 2}}, "training.workers"),
        ({"workers": {"min": 1, "max": 9}}, "training.workers"),
        ({"steps": "3"}, "training.steps"),
    ],
)
def test_training_rules(training: dict[str, object], path: str) -> None:
    assert list(problems_of({**VALUES, "training": training})) == [path]


@pytest.mark.parametrize(
    "axis",
    [{}, {"choices": [1], "low": 1.0, "high": 2.0}, {"low": 2.0, "high": 1.0}, {"low": 0.0, "high": 1.0, "log": True}],
)
def test_an_axis_is_whole(axis: dict[str, object]) -> None:
    assert list(problems_of({**VALUES, "search": {"space": {"adapter.rank": axis}}})) == ["search.space.adapter.rank"]


def test_a_file_that_is_no_recipe(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    for text, part in (("a: [1", "r.yaml:1"), ("- 1\n", "mapping"), ("a: 1\na: 2\n", "stands twice")):
        path.write_text(text)
        with pytest.raises(UserError, match=part):
            load(path)
    (tmp_path / "r.json").write_text('{"a":\n1,,}')
    with pytest.raises(UserError, match=r"r\.json:2"):
        load(tmp_path / "r.json")
    with pytest.raises(UserError, match="cannot be read"):
        load(tmp_path / "none.yaml")


def test_the_fingerprint_is_of_what_is_computed() -> None:
    recipe = build(VALUES)
    assert recipe.fingerprint() == build(VALUES).fingerprint()
    same = with_overrides(recipe, {"training.workers": 2, "training.checkpoint_every": 1, "storage.run": "x"})
    assert same.fingerprint() == recipe.fingerprint()
    for key, value in (("training.seed", 1), ("optimizer.learning_rate", 2e-3), ("data.limit", 5)):
        assert with_overrides(recipe, {key: value}).fingerprint() != recipe.fingerprint()


def test_a_search_may_change_the_plugin_and_its_knobs() -> None:
    recipe = with_overrides(build(VALUES), {"adapter.name": "full", "training.global_batch": 16})
    assert recipe.adapter.name == "full"
    with pytest.raises(RecipeError, match=r"adapter\.rnk"):
        with_overrides(recipe, {"adapter.rnk": 3})


def test_a_recipe_survives_its_plain_form() -> None:
    recipe = build(VALUES)
    assert build(recipe.plain()).plain() == recipe.plain()


def test_paths_expand_the_data_home(cairn_home: Path) -> None:
    recipe = build({**VALUES, "model": {"path": "$CAIRN_HOME/models/m"}, "data": {"train": ["${CAIRN_HOME}/t.jsonl"]}})
    assert recipe.model.path == str(cairn_home / "models/m")
    assert recipe.data.train == (str(cairn_home / "t.jsonl"),)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_in_the_repository_is_valid(path: Path) -> None:
    assert load_steps(path)


def test_an_unknown_format_is_a_problem_with_the_nearest_name() -> None:
    with pytest.raises(RecipeError, match=r"data\.format.*\n.*did you mean 'sharegpt'"):
        build({**VALUES, "data": {"train": ["a.jsonl"], "format": "shargpt"}})
