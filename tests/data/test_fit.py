"""What a format requires is asked in two ways, quickly and in words: they agree on every row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cairn.data.fit import misfit
from cairn.data.format import Format, names
from cairn.errors import DataError
from cairn.records import Source

pytestmark = pytest.mark.unit

SHAPES = Path(__file__).with_name("shapes")
HERE = Source("f.jsonl", 3)
OTHER_VALUES = (None, "", 0, True, [], {}, "[1]", ["a"], [{}])


def rows_of(name: str) -> list[dict[str, Any]]:
    return json.loads((SHAPES / f"{name}.json").read_text(encoding="utf-8"))["rows"]


def changed(value: Any) -> Iterator[Any]:
    """The value with one thing in it taken away or replaced."""
    if isinstance(value, dict):
        yield {**value, "another key": 1}
        for key in value:
            yield {name: inner for name, inner in value.items() if name != key}
            yield from ({**value, key: other} for other in (*OTHER_VALUES, *changed(value[key])))
    elif isinstance(value, list) and value:
        yield from ([other, *value[1:]] for other in (*OTHER_VALUES, *changed(value[0])))


def test_a_row_fits_where_nothing_can_be_said_against_it() -> None:
    formats = [Format.load(name) for name in names()]
    for row in (row for name in names() for row in rows_of(name)):
        assert [f.name for f in formats if f.fits(row)] == [f.name for f in formats if misfit(f.layout, row) is None]


def told(format: Format, row: dict[str, Any]) -> str | None:
    """What the format says of a row that it does not read."""
    try:
        assert format.records({"rows": [row]} if format.layout.group_by else row, HERE)
    except DataError as error:
        return error.what
    return None


@pytest.mark.parametrize("name", names())
def test_a_damaged_row_is_told_or_read_and_never_a_traceback(name: str) -> None:
    format = Format.load(name)
    for row in (other for whole in rows_of(name) for other in changed(whole)):
        problem = misfit(format.layout, row)
        assert format.fits(row) == (problem is None), row
        assert problem or format.needed_keys <= row.keys()
        assert problem in (None, told(format, row))
