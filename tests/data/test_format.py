"""Rows become records by YAML, or an error that says field, found and expected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cairn.data.detection import detect
from cairn.data.documents import read_records
from cairn.data.format import Format, names
from cairn.errors import DataError, UserError
from cairn.records import Comparison, Conversation, Document, Judgement, Message, Record, Source

pytestmark = pytest.mark.unit

HERE = Source("f.jsonl", 3)
FIELD = Path(__file__).parents[3] / "shared" / "data" / "field"


def conversation(name: str, row: dict[str, Any]) -> Conversation:
    record = Format.load(name).records(row, HERE)[0]
    assert isinstance(record, Conversation)
    return record


def turns(record: Conversation) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in record.messages]


def test_there_are_five_formats_and_a_near_miss_is_named() -> None:
    assert {"alpaca", "openai", "pile", "sharegpt", "text"} <= set(names())
    with pytest.raises(UserError, match="alpaca"):
        Format.load("alpacca")


def test_pile() -> None:
    row = {"text": "x\r\n", "meta": {"pile_set_name": "Github", "more": 1}}
    assert Format.load("pile").records(row, HERE) == [Document(HERE, "x\r\n", "Github")]


def test_text_keeps_id_and_subset() -> None:
    assert Format.load("text").records({"text": "x", "id": 7}, HERE) == [Document(HERE, "x", id="7")]


def test_alpaca_with_everything() -> None:
    row = {"instruction": "a", "input": "b", "output": "c", "system": "s", "history": [["q", "r"]]}
    expected = [("system", "s"), ("user", "q"), ("assistant", "r"), ("user", "a\nb"), ("assistant", "c")]
    assert turns(conversation("alpaca", row)) == expected


def test_alpaca_with_little() -> None:
    row = {"instruction": "a", "input": "", "output": "c", "history": None}
    assert turns(conversation("alpaca", row)) == [("user", "a"), ("assistant", "c")]


def test_sharegpt_with_a_call() -> None:
    row = {
        "conversations": [
            {"from": "human", "value": "q"},
            {"from": "function_call", "value": '{"name": "f", "arguments": {"x": 1}}'},
            {"from": "observation", "value": "2"},
            {"from": "gpt", "value": "two", "weight": 0.5},
        ],
        "tools": '[{"name": "f", "parameters": {}}]',
    }
    record = conversation("sharegpt", row)
    assert turns(record) == [("user", "q"), ("assistant", ""), ("tool", "2"), ("assistant", "two")]
    assert record.messages[1].fields == {
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]
    }
    assert record.messages[3].weight == 0.5
    assert record.tools == ({"type": "function", "function": {"name": "f", "parameters": {}}},)


def test_openai_with_parts_calls_and_null_content() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    row = {
        "messages": [
            {"role": "developer", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "2", "tool_call_id": "1"},
        ]
    }
    record = conversation("openai", row)
    assert turns(record) == [("system", "s"), ("user", "ab"), ("assistant", ""), ("tool", "2")]
    assert record.messages[2].fields["tool_calls"][0]["function"]["arguments"] == {"x": 1}
    assert record.messages[3] == Message("tool", "2", fields={"tool_call_id": "1"})


def test_a_message_with_an_empty_list_of_calls_calls_nothing() -> None:
    said = [{"role": "user", "content": "a", "tool_calls": []}, {"role": "assistant", "content": "b", "tool_calls": []}]
    row = {"uuid": "u", "category": "chat", "reasoning": "off", "messages": said, "metadata": "{}"}
    assert detect([row], where="f").best.format.name == "openai"
    assert conversation("openai", row).messages == (Message("user", "a"), Message("assistant", "b"))


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("pile", {"text": 5, "meta": {"pile_set_name": "x"}}, "'text': expected a string, found number"),
        ("pile", {"text": "a"}, "'meta.pile_set_name': expected a string, found nothing"),
        ("pile", [1], "a row is an object, found a list"),
        ("alpaca", {"instruction": "a", "output": None}, "'output': expected a string, found null"),
        ("alpaca", {"instruction": "a", "output": "b", "history": 3}, "'history': expected a list, found number"),
        ("openai", {"messages": []}, "'messages': expected a list of objects, found an empty list"),
        ("openai", {"messages": [{"role": "bot", "content": "a"}]}, r"'messages.0.role': unknown role 'bot'"),
        ("openai", {"messages": [{"role": "user"}]}, "'messages.0.content': expected a string, found nothing"),
        ("openai", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "'image_url' is not text"),
        ("openai", {"messages": [{"role": "user", "content": "a", "weight": -1}]}, "a weight is a number from 0"),
        ("openai", {"messages": [{"role": "user", "content": "a"}], "chosen": "x"}, "'chosen' makes it another format"),
        ("sharegpt", {"conversations": [{"from": "function_call", "value": "f(1)"}]}, "expected JSON"),
    ],
)
def test_a_misfit_names_field_found_and_expected(name: str, row: Any, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        Format.load(name).records(row, HERE)[0]
    assert caught.value.where == "f.jsonl:3"


def test_detection_goes_by_the_first_rows() -> None:
    rows = [{"instruction": "a", "output": "b"}] * 9 + [{"instruction": "a"}]
    found = detect(rows, where="f.json")
    assert (found.best.format.name, found.best.fitting) == ("alpaca", 0.9)


@pytest.mark.parametrize("row", [{"messages": [], "label": True}, {"qqq": "a"}, {"messages": [{"from": "x"}]}])
def test_an_unknown_row_is_met_with_its_keys_the_nearest_formats_and_a_draft(row: Any) -> None:
    with pytest.raises(DataError) as caught:
        detect([row], where="f.json")
    text = str(caught.value)
    assert f"rows with the keys {', '.join(row)} are of no known format" in text
    assert text.count(": field '") == (0 if "qqq" in row else 3)
    assert ("none has any of them" in text) == ("qqq" in row)
    assert "record: conversation" in text
    assert "requires:" in text


def test_rows_that_are_no_objects_are_said_to_be_none() -> None:
    with pytest.raises(DataError, match="a row is an object, found string"):
        detect(["text"], where="f.json")


def test_a_partial_mapping_keeps_what_it_does_not_name() -> None:
    changed = Format.load({"like": "alpaca", "rename": {"instruction": "question", "output": "reply"}})
    row = {"question": "a", "input": "b", "reply": "c", "system": "s"}
    (record,) = changed.records(row, HERE)
    assert isinstance(record, Conversation)
    assert turns(record) == [("system", "s"), ("user", "a\nb"), ("assistant", "c")]


def test_roles_and_keys_can_be_added_to_a_known_format() -> None:
    changed = Format.load(
        {
            "like": "sharegpt",
            "rename": {"conversations": "dialog", "from": "who", "value": "says"},
            "roles": {"me": "user", "it": "assistant"},
            "subset": "topic",
        }
    )
    row = {"dialog": [{"who": "me", "says": "a"}, {"who": "it", "says": "b"}], "topic": "x"}
    (record,) = changed.records(row, HERE)
    assert isinstance(record, Conversation)
    assert (turns(record), record.subset) == ([("user", "a"), ("assistant", "b")], "x")


def test_a_text_with_an_empty_turn_in_the_middle_is_refused_and_one_that_ends_with_a_mark_is_not() -> None:
    with pytest.raises(DataError, match="nothing is said behind '### Assistant:'"):
        Format.load("guanaco_text").records({"text": "### Human: a\n### Assistant:\n### Human: b"}, HERE)
    record = conversation("guanaco_text", {"text": "### Human: a\n### Assistant: b\n### Human:"})
    assert turns(record) == [("user", "a"), ("assistant", "b")]


def test_a_yaml_of_the_users_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("about: mine\nrecord: document\nrequires: {body: string}\ntext: body\n")
    assert Format.load(str(path)).records({"body": "x"}, HERE) == [Document(HERE, "x")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("record: document\nrequires: {a: string}\ntext: a\n", "about"),
        ("about: x\nrecord: document\nrequires: {a: string}\n", "a document needs text"),
        ("about: x\nrecord: document\nrequires: {a: text}\ntext: a\n", "requires.a"),
        ("about: x\nrecord: document\nrequires: {a: string}\ntext: a\ntxet: b\n", "did you mean 'text'"),
        ("about: x\nrecord: document\nrequires: {a: string}\ntext: a | stripp\n", "there is no step 'stripp'"),
        ("about: x\nrecord: conversation\nrequires: {a: string}\nmessages: [{content: [a]}]\n", "role or role_at"),
        ("- 1\n", "a format is a mapping"),
    ],
)
def test_a_wrong_yaml_says_what_is_wrong(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        Format.load(str(path))


def field_records(file: str, count: int) -> list[Record]:
    """The records of a file from the field, one a row and none lost."""
    if not (FIELD / file).is_file():
        pytest.skip(f"no field data at {FIELD / file}")
    records = list(read_records([FIELD / file]))
    assert len(records) == count
    assert len({record.source.line for record in records}) == count
    return records  # type: ignore[return-value]


@pytest.mark.parametrize(("file", "count"), [("alpaca_en_demo.json", 300), ("glaive_toolcall_en_demo.json", 120)])
def test_files_from_the_field(file: str, count: int) -> None:
    records = field_records(file, count)
    assert all(isinstance(record, Conversation) and len(record.messages) >= 2 for record in records)
    if file.startswith("glaive"):
        calls = [m for record in records for m in record.messages if "tool_calls" in m.fields]  # type: ignore[union-attr]
        assert len(calls) == 92


def test_pairs_from_the_field() -> None:
    records = field_records("dpo_en_demo.json", 120)
    assert all(
        isinstance(record, Comparison)
        and [record.prompt[-1].role, record.chosen[0].role, record.rejected[0].role]
        == ["user", "assistant", "assistant"]
        and record.chosen != record.rejected
        for record in records
    )


def test_verdicts_from_the_field() -> None:
    rows = json.loads((FIELD / "kto_en_demo.json").read_text()) if FIELD.is_dir() else []
    records = field_records("kto_en_demo.json", 120)
    found = [record.good for record in records if isinstance(record, Judgement)]
    assert found == [row["label"] for row in rows]
