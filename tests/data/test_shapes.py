"""Every format has a sample in `shapes/` that is detected as itself among all others and becomes exactly its records.

A sample is `{"rows": [raw rows], "records": [what they become, without the source]}`; `also` lists the datasets whose
rows look the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cairn.data import detection
from cairn.data.detection import candidates, detect
from cairn.data.documents import read_records
from cairn.data.drops import Rejected
from cairn.data.format import Format, names
from cairn.errors import DataError
from cairn.records import Record

pytestmark = pytest.mark.unit

SHAPES = Path(__file__).with_name("shapes")
LEAST_SHAPES, LEAST_DATASETS = 40, 65


def sample(name: str) -> dict[str, Any]:
    return json.loads((SHAPES / f"{name}.json").read_text(encoding="utf-8"))


def read(rows: list[Any], folder: Path, format: str) -> list[Record]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    records = list(read_records([path], format))
    assert not [record for record in records if isinstance(record, Rejected)], records
    return records  # type: ignore[return-value]


DEFAULTS = {"subset": "unknown", "id": "", "tools": [], "answer": None, "margin": 0.0, "group": "", "weight": 1.0}


def plain(record: Record) -> dict[str, Any]:
    """The record as JSON says it, without where it came from and without what it leaves at its default."""
    values = json.loads(msgspec.json.encode(record))
    source = values.pop("source")
    assert source["line"] >= 1
    if values.get("group", "").startswith(source["file"]):
        values["group"] = "(its source)"
    return shortened(values)


def shortened(value: Any) -> Any:
    if isinstance(value, list):
        return [shortened(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {k: shortened(v) for k, v in value.items() if k not in DEFAULTS or v != DEFAULTS[k]}


def test_every_format_has_a_sample() -> None:
    assert {path.stem for path in SHAPES.glob("*.json")} == set(names())


@pytest.mark.parametrize("name", names())
def test_a_sample_is_detected_as_itself_and_as_something_else_without_its_yaml(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = sample(name)["rows"]
    found = detect(rows, where=name)
    assert found.best.format.name == name, [c.format.name for c in candidates(rows)]
    assert found.best.confidence > 0.5, found
    monkeypatch.setattr(detection, "names", lambda: [other for other in names() if other != name])
    others = candidates(rows)
    assert name not in [candidate.format.name for candidate in others]
    if not others:
        with pytest.raises(DataError, match="of no known format"):
            detect(rows, where=name)


@pytest.mark.parametrize("name", names())
def test_a_sample_becomes_its_records_which_survive_their_way_between_processes(name: str, tmp_path: Path) -> None:
    wanted = sample(name)
    records = read(wanted["rows"], tmp_path, name)
    assert [plain(record) for record in records] == wanted["records"]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(records), type=list[Record]) == records


def test_a_dataset_is_named_once() -> None:
    also = [dataset for name in names() for dataset in Format.load(name).layout.also]
    assert sorted(also) == sorted(set(also))


def test_there_are_enough_shapes_and_datasets() -> None:
    also = [dataset for name in names() for dataset in Format.load(name).layout.also]
    assert len(names()) >= LEAST_SHAPES
    assert len(also) >= LEAST_DATASETS
