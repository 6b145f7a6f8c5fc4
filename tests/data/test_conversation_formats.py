"""What the samples in `shapes/` do not show of the conversation formats: rows that are refused, and odd ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cairn.data.format import Format
from cairn.errors import DataError
from cairn.records import Conversation, Source

pytestmark = pytest.mark.unit

HERE = Source("f.jsonl", 3)
SHAPES = Path(__file__).with_name("shapes")


def first_row(name: str, **changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = json.loads((SHAPES / f"{name}.json").read_text(encoding="utf-8"))["rows"][0]
    return row | changes


def records(name: str, row: dict[str, Any]) -> list[Conversation]:
    return [record for record in Format.load(name).records(row, HERE) if isinstance(record, Conversation)]


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("open_math_instruct", {"is_correct": False}, "expected one of True, found False"),
        ("p3", {"is_correct": False}, "'is_correct' makes it another format"),
        ("xlam", {"answers": "[{]"}, "expected JSON"),
        ("xlam", {"answers": '[{"arguments": {}}]'}, "a call needs a name"),
        ("self_instruct", {"instances": [{"output": "x"}, "y"]}, "'instances': expected a list of objects"),
        ("glaive_functions", {"system": "SYSTEM: functions -\n{'name'"}, "'system': a function is not JSON"),
        ("glaive_functions", {"chat": "USER: a\n\nASSISTANT: <functioncall> nothing"}, "expected a function call"),
        ("sharegpt", {"conversations": [{"from": "narrator", "value": "x"}]}, "unknown role 'narrator'"),
        ("moss", {"chat": {"turn_1": {"Human": "a", "MOSS": "b"}}}, "'chat.*.0.Human | after"),
    ],
)
def test_a_row_that_would_be_trained_wrongly_is_refused(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError) as caught:
        records(name, first_row(name, **changes))
    assert message in caught.value.what


def test_calls_that_cannot_be_read_are_refused() -> None:
    row = first_row("hermes_functions")
    row["conversations"][2]["value"] = "<tool_call>\nlamp(on)\n</tool_call>"
    with pytest.raises(DataError, match="expected a function call, found 'lamp"):
        records("hermes_functions", row)


def test_a_call_of_glaive_may_have_no_arguments_or_lines_within_them() -> None:
    chat = 'USER: a\n\nASSISTANT: <functioncall> {"name": "f"} <|endoftext|>\n\nFUNCTION RESPONSE: 1\n\n'
    chat += 'ASSISTANT: <functioncall> {"name": "g", "arguments": \'{"x": "1\n2"}\'} <|endoftext|>'
    (record,) = records("glaive_functions", first_row("glaive_functions", chat=chat))
    calls = [call["function"] for m in record.messages for call in m.fields.get("tool_calls", ())]
    assert calls == [{"name": "f", "arguments": {}}, {"name": "g", "arguments": {"x": "1\n2"}}]


def message(id: str, parent: str | None, **more: Any) -> dict[str, Any]:
    role = "prompter" if id.startswith("p") else "assistant"
    return {"message_id": id, "parent_id": parent, "message_tree_id": "p0", "role": role, "text": id} | more


def test_every_answer_of_a_tree_counts_once_whatever_the_order_of_its_messages() -> None:
    rows = [
        message("a1", "p0", rank=1),
        message("p3", "a2"),
        message("a4", "p3"),
        message("a2", "p0", rank=0),
        message("p0", None),
        message("p5", "a2", deleted=True),
        message("a6", "p5"),
    ]
    found = records("oasst", {"rows": rows})
    assert [[m.content for m in record.messages] for record in found] == [["p0", "a2", "p3", "a4"], ["p0", "a1"]]
    counted = [m.content for record in found for m in record.messages if m.role == "assistant" and m.weight]
    assert sorted(counted) == ["a1", "a2", "a4"]


@pytest.mark.parametrize("rows", [[message("a1", "p0")], [message("p0", None)], [message("p0", None, deleted=True)]])
def test_a_tree_without_its_root_or_an_answer_is_refused(rows: list[dict[str, Any]]) -> None:
    with pytest.raises(DataError, match="nothing in the row can be used"):
        records("oasst", {"rows": rows})


def test_a_language_that_is_not_known_stands_under_its_code() -> None:
    (record,) = records("wmt", {"translation": {"xx": "a", "en": "b"}})
    assert record.messages[0].content == "Translate from xx to English.\n\na"


def test_an_answer_that_says_nothing_is_none() -> None:
    row = {"problem": "Prove it.", "solution": "So it is.", "answer": "proof"}
    assert records("problem_solution", row)[0].answer is None
