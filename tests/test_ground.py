"""L0: errors cross processes, metrics add up before they divide, records say where they are from, plugins are files."""

from __future__ import annotations

import importlib.metadata
import math
import pickle
from pathlib import Path

import msgspec
import pytest

from cairn.errors import AdapterError, CairnError, DataError, Problem, RecipeError, UserError, did_you_mean
from cairn.metrics import Metric, merge
from cairn.plugins import FAMILIES, OPTIMIZERS, Plugins
from cairn.records import KINDS, Comparison, Conversation, Document, Judgement, Message, Record, Source

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("kind", [CairnError, UserError, DataError, AdapterError])
def test_an_error_survives_pickling(kind: type[CairnError]) -> None:
    error = pickle.loads(pickle.dumps(kind("what", where="file:3", next_step="mend it")))
    assert type(error) is kind
    assert str(error) == "file:3: what\n  → mend it"
    assert error.exit_code == kind.exit_code


def test_a_recipe_error_keeps_its_problems() -> None:
    error = RecipeError(
        [Problem("a.b", 1, "too small", "raise it"), Problem("c", "x" * 200, "odd", "shorten")], where="r"
    )
    again = pickle.loads(pickle.dumps(error))
    assert again.problems == error.problems
    assert "2 problems" in str(again)
    assert "a.b = 1: too small\n  → raise it" in str(again)
    assert max(map(len, str(again).splitlines())) < 120


def test_exit_codes_tell_whose_fault_it_is() -> None:
    assert (CairnError("x").exit_code, UserError("x").exit_code, RecipeError([]).exit_code) == (1, 2, 2)


def test_the_nearest_name_or_all_of_them() -> None:
    assert did_you_mean("adamv", ["adamw", "sgd"]) == "did you mean 'adamw'?"
    assert did_you_mean("zzz", ["b", "a"]) == "choose one of: a, b"


def test_a_metric_divides_once_and_last() -> None:
    parts = [{"loss": Metric(2.0, 1.0)}, {"loss": Metric(1.0, 9.0), "rows": Metric(3.0, 1.0)}]
    merged = merge(parts)
    assert merged["loss"].value == pytest.approx(0.3)
    assert merged["rows"] == Metric(3.0, 1.0)
    assert math.isnan(Metric(0.0, 0.0).value)


def test_records_round_trip_with_their_source() -> None:
    source, turn = Source("f.jsonl", 3), Message("user", "hi")
    records: list[Record] = [
        Document(source, "text", "Github"),
        Conversation(source, (turn, Message("assistant", "yo", 0.5)), answer="yo"),
        Comparison(source, (turn,), (turn,), (turn,), margin=1.0),
        Judgement(source, (turn,), (turn,), good=True),
    ]
    assert {type(record) for record in records} == set(KINDS.values())
    for record in records:
        assert msgspec.json.decode(msgspec.json.encode(record), type=Record) == record
    assert str(source) == "f.jsonl:3"


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_plugin_of_every_family_keeps_the_contract(family: str) -> None:
    plugins = FAMILIES[family]
    assert plugins.names()
    for name in plugins.names():
        plugin = plugins.load(name)
        assert plugin.name == name
        assert plugin.__doc__, f"{family}.{name}"
        paths = [key for key, field in plugin.Config.model_fields.items() if field.is_required()]
        config = plugin.Config.parse(dict.fromkeys(paths, "a/path"))  # what has no default is a file of the user's
        assert plugin.Config.parse(config.model_dump(mode="json")) == config
        assert all(field.description for field in plugin.Config.model_fields.values()), f"{family}.{name}"


def test_an_unknown_plugin_names_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'adamw'"):
        OPTIMIZERS.load("adamv")


def test_a_file_is_a_choice_and_base_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "growing"
    package.mkdir()
    (package / "__init__.py").write_text('"""p"""')
    (package / "base.py").write_text("from cairn.plugins import Plugin\nclass Thing(Plugin):\n    pass\n")
    (package / "_shared.py").write_text("")
    (package / "one.py").write_text("from growing.base import Thing\nclass One(Thing):\n    pass\n")
    (package / "none.py").write_text("from growing.base import Thing\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins = Plugins("growing", "growing.base:Thing")
    assert plugins.names() == ["none", "one"]
    assert plugins.load("one").name == "one"
    with pytest.raises(TypeError, match="exactly one Thing, it defines 0"):
        plugins.load("none")


def test_another_distribution_may_bring_a_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere.py").write_text(
        "from cairn.optimizers.base import Optimizer\nclass Sophia(Optimizer):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    point = importlib.metadata.EntryPoint("optimizers.sophia", "elsewhere", "cairn.plugins")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point])
    assert "sophia" in OPTIMIZERS.names()
    assert OPTIMIZERS.load("sophia").__name__ == "Sophia"
