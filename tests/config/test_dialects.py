"""Moving in: what LlamaFactory's and Axolotl's configurations become, and that no key is lost on the way."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.config.moving_in import AXOLOTL, LLAMAFACTORY, Case

from cairn.config import load
from cairn.config.dialects import axolotl, llamafactory
from cairn.config.dialects.detect import detect, import_file
from cairn.config.dialects.translation import Translation, translate
from cairn.config.dialects.writing import recipe_yaml
from cairn.config.yaml import parse_yaml
from cairn.errors import UserError
from cairn.plugins import Plugins

pytestmark = pytest.mark.unit

ZERO = {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}
CASES = {
    f"{kind}-{name}": case for kind, cases in (("l", LLAMAFACTORY), ("a", AXOLOTL)) for name, case in cases.items()
}
MINIMAL = {"model_name_or_path": "m", "dataset": "a", "stage": "sft"}


@pytest.fixture(autouse=True)
def this_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugins of a version with little in it, so that what is said of missing ones stays true as they come."""
    few = {
        "cairn.stages": ["pretrain", "sft"],
        "cairn.adapters.methods": ["full", "lora"],
        "cairn.optimizers": ["adamw"],
        "cairn.training.trackers": ["jsonl", "tensorboard"],
    }
    names = Plugins.names
    monkeypatch.setattr(Plugins, "names", lambda self: few.get(self.package, names(self)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ds").mkdir()
    (tmp_path / "ds" / "z3_offload.json").write_text(json.dumps({"zero_optimization": ZERO}))
    return tmp_path


def imported(source: str, folder: Path, name: str = "config.yaml") -> Translation:
    (folder / name).write_text(source, encoding="utf-8")
    return import_file(folder / name)


def from_llamafactory(**given: Any) -> Translation:
    return translate(llamafactory.DIALECT, {**MINIMAL, **given}, Path("config.yaml"))


def from_axolotl(**given: Any) -> Translation:
    return translate(axolotl.DIALECT, {"base_model": "m", **given}, Path("config.yaml"))


def row(translation: Translation, key: str) -> tuple[str, str, str]:
    found = next(row for row in translation.rows if row.key == key)
    return found.status, found.target, found.note


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_configuration_becomes_exactly_this_recipe(case: Case, folder: Path) -> None:
    assert imported(case.source, folder).values == parse_yaml(case.recipe, where="recipe")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_key_is_accounted_for_exactly_once(case: Case, folder: Path) -> None:
    given = parse_yaml(case.source, where="source")
    rows = [row for row in imported(case.source, folder).rows if row.status != "implied"]
    assert set(Counter(row.key for row in rows).values()) == {1}
    assert {row.key.partition(".")[0] for row in rows} == set(given)
    for name, entries in given.items():
        if name in ("datasets", "test_datasets"):
            inside = {f"{name}.{index}.{key}" for index, entry in enumerate(entries) for key in entry}
            assert inside == {row.key for row in rows if row.key.startswith(f"{name}.")}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_the_report_says(case: Case, folder: Path) -> None:
    translation = imported(case.source, folder)
    for key, expected in case.said.items():
        status, _, note = row(translation, key)
        assert expected == status or expected in note, key
    for found in translation.rows:
        assert found.note or found.status in ("taken", "implied", "default"), found.key


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_written_yaml_says_the_same(case: Case, folder: Path) -> None:
    values = imported(case.source, folder).values
    text = recipe_yaml(values, ["a head"])
    assert text.startswith("# a head\nmodel:\n")
    assert parse_yaml(text, where="recipe") == values


def test_json_says_the_same(folder: Path) -> None:
    case = LLAMAFACTORY["sft_lora"]
    as_json = json.dumps(parse_yaml(case.source, where="source"))
    assert imported(as_json, folder, "config.json").values == imported(case.source, folder).values


def test_what_has_all_its_equals_loads_and_nothing_else_does(folder: Path) -> None:
    recipe = load.build(imported(AXOLOTL["text"].source, folder).values)
    assert (recipe.stage.name, recipe.adapter.name, recipe.training.global_batch) == ("pretrain", "full", 8)
    with pytest.raises(UserError, match="no stage of that name"):
        load.build(imported(LLAMAFACTORY["reward"].source, folder).values)


def test_a_plugin_that_came_is_no_longer_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Plugins.names
    monkeypatch.setattr(
        Plugins, "names", lambda self: [*names(self), *(["lora_plus"] if "optim" in self.package else [])]
    )
    monkeypatch.setattr(Plugins, "load", lambda self, name: type("Any", (), {"Config": knowing_all()}))
    translation = from_llamafactory(loraplus_lr_ratio=16)
    assert translation.values["optimizer"]["name"] == "lora_plus"
    assert row(translation, "loraplus_lr_ratio") == ("taken", "optimizer.ratio", "")


def knowing_all() -> Any:
    """A Config with every key."""

    class Everything:
        model_fields = type("All", (), {"__contains__": lambda self, key: True})()

    return Everything


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"model": {}, "stage": "sft"}, "this is a recipe already"),
        ({"learning_rate": 1, "seed": 2}, "its keys: learning_rate, seed"),
        ({"base_model": "m", "model_name_or_path": "m"}, "neither a LlamaFactory nor an Axolotl"),
        ({}, "its keys: none"),
    ],
)
def test_neither_dialect_says_what_was_found(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError) as caught:
        detect(given, Path("x.yaml"))
    assert expected in str(caught.value)


def test_dialects_are_told_apart_by_their_own_keys() -> None:
    assert detect({"finetuning_type": "lora", "cutoff_len": 8, "bf16": True}, Path("x")).title == "LlamaFactory"
    assert detect({"datasets": [], "sequence_len": 8, "bf16": True}, Path("x")).title == "Axolotl"


@pytest.mark.parametrize(
    ("key", "value", "advice"),
    [
        ("stage", "dop", "did you mean 'dpo'"),
        ("flash_attn", "fa9", "did you mean"),
        ("mix_strategy", "x", "choose one"),
    ],
)
def test_a_wrong_value_is_a_problem(key: str, value: str, advice: str) -> None:
    translation = from_llamafactory(**{key: value})
    assert row(translation, key)[0] == "wrong value"
    assert [(problem.path, problem.value) for problem in translation.problems] == [(key, value)]
    assert advice in translation.problems[0].advice


def test_a_preference_loss_must_be_known() -> None:
    assert from_llamafactory(stage="dpo", pref_loss="sigmod").problems[0].advice == "did you mean 'sigmoid'?"
    assert from_llamafactory(stage="dpo", pref_loss="kto_pair").values["stage"]["name"] == "kto"
    assert from_llamafactory(stage="dpo").values["stage"] == {"name": "dpo", "loss": "sigmoid", "beta": 0.1}


@pytest.mark.parametrize(
    ("given", "schedule"),
    [
        ({}, {"name": "linear", "warmup_steps": 0}),
        ({"warmup_ratio": 0.1}, {"name": "linear", "warmup_fraction": 0.1}),
        ({"warmup_ratio": 0.1, "warmup_steps": 5}, {"name": "linear", "warmup_steps": 5}),
        ({"warmup_steps": 0.05}, {"name": "linear", "warmup_fraction": 0.05}),
        ({"lr_scheduler_type": "constant", "warmup_ratio": 0.1}, {"name": "constant", "warmup_steps": 0}),
        ({"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 3}, {"name": "constant", "warmup_steps": 3}),
        (
            {"lr_scheduler_type": "cosine_with_restarts", "lr_scheduler_kwargs": {"num_cycles": 3}, "warmup_steps": 1},
            {"name": "cosine", "cycles": 3, "warmup_steps": 1},
        ),
    ],
)
def test_warm_up_is_the_trainers(given: dict[str, Any], schedule: dict[str, Any]) -> None:
    assert from_llamafactory(**given).values["schedule"] == schedule


@pytest.mark.parametrize(
    ("given", "precision"),
    [({"bf16": True}, "bf16"), ({"fp16": True, "bf16": False}, "bf16"), ({"bf16": False}, "fp32"), ({}, None)],
)
def test_precision(given: dict[str, Any], precision: str | None) -> None:
    assert from_llamafactory(**given).values["training"].get("precision") == precision


@pytest.mark.parametrize(
    ("given", "every"),
    [
        ({"eval_strategy": "no", "eval_steps": 5}, None),
        ({"eval_strategy": "steps", "logging_steps": 7}, 7),
        ({"eval_strategy": "epoch"}, None),
        ({"eval_steps": 0.1}, None),
        ({"eval_steps": 9}, 9),
    ],
)
def test_when_it_is_evaluated(given: dict[str, Any], every: int | None) -> None:
    assert from_llamafactory(**given).values["training"].get("evaluate_every") == every


def test_datasets_that_lie_elsewhere() -> None:
    assert from_llamafactory(dataset=["a", "b"], dataset_dir="d/").values["data"]["train"] == [
        {"catalog": "d/dataset_info.json", "name": ["a", "b"]}
    ]
    remote = from_llamafactory(dataset_dir="REMOTE:org/data")
    assert "download dataset_info.json" in row(remote, "dataset")[2]
    assert "train" not in remote.values["data"]
    even = from_llamafactory(dataset="a,b", mix_strategy="interleave_under").values["data"]
    assert [entry["weight"] for entry in even["train"]] == [1.0, 1.0]
    assert even["epoch_ends"] == "first"
    assert from_llamafactory(dataset="a,b", mix_strategy="interleave_over", interleave_probs="0.5").problems


def test_a_stream_and_what_is_held_out() -> None:
    data = from_llamafactory(streaming=True, buffer_size=5000, val_size=100, max_steps=50).values["data"]
    assert (data["streaming"], data["shuffle_rows"], data["hold_out"]) == (True, 5000, 100)
    prepared = from_llamafactory(buffer_size=5000, streaming=False, val_size=0)
    assert row(prepared, "buffer_size")[2] == "has no effect without streaming"
    assert not {"streaming", "shuffle_rows", "hold_out"} & set(prepared.values["data"])
    assert row(from_llamafactory(buffer_size=16384), "buffer_size")[0] == "default"
    held = from_axolotl(datasets=[{"path": "a.jsonl"}], val_set_size=0.05, streaming=True).values["data"]
    assert (held["hold_out"], held["streaming"]) == (0.05, True)


def test_deepspeed_of_unknown_name_is_asked_for() -> None:
    assert row(from_llamafactory(deepspeed="nowhere/own.json"), "deepspeed") == (
        "no equal",
        "",
        "the file is not there; set training.zero_stage",
    )
    inline = from_llamafactory(deepspeed={"zero_optimization": {"stage": 1}})
    assert inline.values["training"]["zero_stage"] == 1


@pytest.mark.parametrize(
    ("entry", "train"),
    [
        ({"path": "org/set"}, ["hf://datasets/org/set"]),
        ({"path": "s3://bucket/x.parquet"}, ["s3://bucket/x.parquet"]),
        ({"path": "json", "data_files": "a.json", "type": "alpaca"}, [{"path": "a.json", "format": "alpaca"}]),
        ({"path": "./dir", "data_files": ["a.jsonl", "b.jsonl"]}, ["./dir/a.jsonl", "./dir/b.jsonl"]),
        (
            {"path": "a.jsonl", "type": {"field_instruction": "q", "field_output": "a", "format": "{instruction}"}},
            [{"path": "a.jsonl", "format": {"like": "alpaca", "rename": {"instruction": "q", "output": "a"}}}],
        ),
        (
            {"path": "a.jsonl", "type": "sharegpt", "field_messages": "chat"},
            [{"path": "a.jsonl", "format": {"like": "sharegpt", "rename": {"conversations": "chat"}}}],
        ),
        ({"path": "a.jsonl", "type": "oasst"}, ["a.jsonl"]),
    ],
)
def test_axolotl_datasets(entry: dict[str, Any], train: list[Any]) -> None:
    assert from_axolotl(datasets=[entry]).values["data"]["train"] == train


def test_axolotl_trains_everything_without_an_adapter() -> None:
    assert from_axolotl(adapter=None).values["adapter"] == {"name": "full"}
    assert from_axolotl(unfrozen_parameters=["lm_head"]).values["adapter"] == {"name": "freeze", "modules": ["lm_head"]}
    assert from_axolotl(pretraining_dataset="org/text").values["stage"] == {"name": "pretrain"}
    assert from_axolotl(reward_model=True).values["stage"] == {"name": "reward"}
    assert from_axolotl(rl="grpo", trl={"num_generations": 4}).values["stage"] == {"name": "grpo", "group_size": 4}


@pytest.mark.parametrize("dialect", [llamafactory.DIALECT, axolotl.DIALECT], ids=lambda dialect: dialect.title)
def test_every_rule_bears_its_own_default_and_every_implied_key_has_a_rule(dialect: Any) -> None:
    assert not set(dialect.implied) - set(dialect.rules)
    for key in dialect.rules:
        if "*" not in key:
            nested: Any = None
            for part in reversed(key.split(".")):
                nested = {part: nested}
            translation = translate(dialect, nested, Path("x"))
            assert row(translation, key)[0] == "default", key
