"""Several datasets in one recipe, each with its own format, limit and weight, some from a LlamaFactory catalogue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cairn.config.load import build
from cairn.config.recipe import Recipe
from cairn.data.datasets import data_files, weights
from cairn.data.mixture import Mixture
from cairn.data.pipeline import prepare_local
from cairn.data.shards import TokenShards
from cairn.errors import DataError, RecipeError, UserError

pytestmark = pytest.mark.unit


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An alpaca file, one with other names, and a catalogue of both."""
    asked = [{"instruction": f"Say {i}", "input": "", "output": f"{i}"} for i in range(12)]
    renamed = [{"ask": f"Count to {i}", "reply": f"{i}!"} for i in range(8)]
    (tmp_path / "a.json").write_text(json.dumps(asked))
    (tmp_path / "b.json").write_text(json.dumps(renamed))
    catalog = {
        "first": {"file_name": "a.json"},
        "second": {"file_name": "b.json", "columns": {"prompt": "ask", "response": "reply"}, "num_samples": 5},
    }
    (tmp_path / "dataset_info.json").write_text(json.dumps(catalog))
    return tmp_path


def recipe(folder: Path, model: Path, train: list[Any], **data: Any) -> Recipe:
    settings = {"train": train, "packing": False, "sequence_length": 256, **data}
    return build({"model": {"path": str(model)}, "data": settings, "stage": "sft"})


def test_a_catalogue_and_a_path_side_by_side(folder: Path, tiny_path: Path) -> None:
    train = [
        {"path": str(folder / "a.json"), "limit": 4, "weight": 1.0},
        {"catalog": str(folder / "dataset_info.json"), "name": ["second"], "weight": 1.0},
    ]
    parsed = recipe(folder, tiny_path, train, arrangement="concatenated")
    assert [(file.dataset, file.limit) for file in data_files(parsed.data, documents=False)] == [(0, 4), (1, 5)]
    shards = TokenShards.open(prepare_local(parsed).train)
    assert shards.manifest.dataset_rows(2) == [4, 5]
    mixed = Mixture.of([4, 5], fingerprint=shards.fingerprint, weights=weights(parsed.data), arrangement="concatenated")
    sources = [shards[i].sources[0] for i in mixed.order(0, 0)]
    assert [Path(source).name.partition(":")[0] for source in sources] == ["a.json"] * 4 + ["b.json"] * 4


def test_a_changed_format_from_the_recipe(folder: Path, tiny_path: Path) -> None:
    choice = {"like": "alpaca", "rename": {"instruction": "ask", "output": "reply"}}
    parsed = recipe(folder, tiny_path, [str(folder / "b.json")], format=choice)
    manifest = prepare_local(parsed).manifest
    assert (manifest.records, manifest.documents, manifest.drops) == (8, 8, {})


def test_the_order_of_an_epoch_needs_no_new_tokens(folder: Path, tiny_path: Path) -> None:
    paths = [{"path": str(folder / "a.json")}, {"path": str(folder / "a.json"), "weight": 2.0}]
    one = recipe(folder, tiny_path, paths[:1])
    other = recipe(folder, tiny_path, [{"path": str(folder / "a.json"), "weight": 3.0}], arrangement="interleaved")
    assert prepare_local(one).train == prepare_local(other).train


def test_weights_of_a_catalogues_names(folder: Path, tiny_path: Path) -> None:
    catalog = {"catalog": str(folder / "dataset_info.json"), "name": ["first", "second"], "weight": 2.0}
    assert weights(recipe(folder, tiny_path, [str(folder / "a.json"), catalog]).data) == (None, 2.0, 2.0)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({}, "needs either path or catalog"),
        ({"catalog": "c.json"}, "catalog and name go together"),
        ({"path": "a", "catalog": "b", "name": "c"}, "needs either path or catalog"),
        ({"path": "a", "format": "alpacca"}, "did you mean 'alpaca'"),
        ({"path": "a", "format": {"rename": {}}}, "says not which format it is like"),
        ({"path": "a", "weight": 0}, "data.train.0"),
    ],
)
def test_a_wrong_entry_is_a_problem_of_the_recipe(folder: Path, tiny_path: Path, entry: Any, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        recipe(folder, tiny_path, [entry])


def test_a_wrong_name_and_a_wrong_file_are_told(folder: Path, tiny_path: Path) -> None:
    wrong = recipe(folder, tiny_path, [{"catalog": str(folder / "dataset_info.json"), "name": "secnd"}])
    with pytest.raises(DataError, match="did you mean 'second'"):
        data_files(wrong.data, documents=False)
    with pytest.raises(UserError, match=r"no file|no such file"):
        data_files(recipe(folder, tiny_path, [{"path": str(folder / "none.json")}]).data, documents=False)
