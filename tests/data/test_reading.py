"""Records that are held out: a share or a number of them, the same ones for training and for evaluation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.data.recipes import data_recipe

from cairn.data.drops import DropReason, Rejected
from cairn.data.pipeline import Prepared, prepare_local
from cairn.data.reading import HoldOut, Reading, hold_outs, records_of
from cairn.data.shards import TokenShards
from cairn.errors import RecipeError
from cairn.records import Source

pytestmark = pytest.mark.unit


def lines(path: Path, count: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": f"line {i} of {path.name}"}) + "\n" for i in range(count)))
    return path


def reading(path: Path, rule: HoldOut, *, held_out: bool, **others: Any) -> Reading:
    settings = {"format": "auto", "limit": None, "subsets": (), "kind": "document", **others}
    return Reading(file_index=0, path=str(path), hold_out=rule, held_out=held_out, **settings)


def sources(path: Path, rule: HoldOut, *, held_out: bool, **others: Any) -> list[Source]:
    found = records_of(reading(path, rule, held_out=held_out, **others))
    return [record.source for record in found if not isinstance(record, Rejected)]


@pytest.mark.parametrize("rule", [HoldOut(share=0.1), HoldOut(first=70), HoldOut(first=0), HoldOut(share=0.999)])
def test_each_record_is_for_training_or_for_evaluation(tmp_path: Path, rule: HoldOut) -> None:
    path = lines(tmp_path / "a.jsonl", 1000)
    held, trained = (sources(path, rule, held_out=held_out) for held_out in (True, False))
    assert not set(held) & set(trained)
    assert sorted(source.line for source in held + trained) == list(range(1, 1001))
    expected = rule.first or 1000 * rule.share
    assert abs(len(held) - expected) <= (30 if rule.share else 0)
    counted = [record for record in records_of(reading(path, rule, held_out=False)) if isinstance(record, Rejected)]
    assert [record.reason for record in counted] == [DropReason.HELD_OUT] * len(held)
    assert not DropReason.HELD_OUT.unusable


def test_a_moved_file_is_split_as_before_and_a_tree_by_its_files(tmp_path: Path) -> None:
    rule = HoldOut(share=0.3)
    numbers = [
        [source.line for source in sources(lines(tmp_path / where / "a.jsonl", 100), rule, held_out=True)]
        for where in ("one", "other")
    ]
    assert numbers[0] == numbers[1]
    names = []
    for where in ("tree", "moved"):
        for i in range(60):
            lines(tmp_path / where / f"{i}.py", 1)
        found = [
            record.source.file
            for record in records_of(reading(Path(f"tree:{tmp_path / where}"), rule, held_out=True))
            if not isinstance(record, Rejected)
        ]
        names.append([Path(file).name for file in found])
    assert names[0] == names[1]
    assert 5 < len(names[0]) < 35


def test_what_came_of_one_row_stays_together(tmp_path: Path) -> None:
    """A ranking becomes several pairs of one line."""
    rows = [{"prompt": f"\n\nHuman: p{i} \n\nAssistant: ", "answers": [{"model": m, "answer": f"{m}{i}", "rank": r} for r, m in enumerate("abc", 1)]} for i in range(40)]  # fmt: skip
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for rule in (HoldOut(first=4), HoldOut(share=0.4)):
        held, trained = (
            {source.line for source in sources(path, rule, held_out=part, format="nectar", kind="comparison")}
            for part in (True, False)
        )
        assert held
        assert trained
        assert not held & trained


def test_a_number_is_divided_by_the_sizes() -> None:
    assert [rule.first for rule in hold_outs(10, [700, 200, 100])] == [7, 2, 1]
    assert [rule.first for rule in hold_outs(4, [1, 1, 1])] == [2, 1, 1]
    assert [rule.first for rule in hold_outs(2, [0, 0])] == [1, 1]
    assert hold_outs(0.25, [5, 5]) == [HoldOut(share=0.25)] * 2


def test_what_is_held_out_is_counted_and_not_trained(tmp_path: Path, tiny_path: Path) -> None:
    files = [lines(tmp_path / "a.jsonl", 200), lines(tmp_path / "b.jsonl", 100)]
    other = lines(tmp_path / "v.jsonl", 5)
    for amount, expected in ((0.2, 60), (30, 30)):
        entry = {"path": str(other), "format": "text", "limit": 3}
        recipe = data_recipe(tiny_path, files, hold_out=amount, validation=[entry])
        prepared = prepare_local(recipe)
        manifest = prepared.manifest
        assert abs(manifest.drops["held out"] - expected) <= (0 if amount > 1 else 20)
        assert manifest.documents + manifest.drops["held out"] == manifest.records == 300
        own, *held = (sources_of(prepared, i) for i in range(3))
        assert own == [f"{other}:{i}" for i in (1, 2, 3)]
        shards = TokenShards.open(prepared.train)
        trained = {source for i in range(len(shards)) for source in shards[i].sources}
        assert not trained & {*held[0], *held[1]}
        assert len(trained) + len(held[0]) + len(held[1]) == 300


def sources_of(prepared: Prepared, number: int) -> list[str]:
    found = records_of(prepared.validation[number])
    return [str(record.source) for record in found if not isinstance(record, Rejected)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"hold_out": 1.5}, "whole number of records"),
        ({"validation": [{"path": "a", "weight": 1.0}]}, r"data\.validation\.0\.weight"),
        ({"validation": [{"catalog": "a"}]}, "catalog and name go together"),
        ({"validation": [{"path": "a", "format": "alpacca"}]}, "did you mean 'alpaca'"),
    ],
)
def test_what_a_recipe_may_not_say(data: dict[str, Any], message: str) -> None:
    from cairn.config.load import build

    with pytest.raises(RecipeError, match=message):
        build({"model": {"path": "m"}, "stage": "sft", "data": {"train": ["a"], **data}})
