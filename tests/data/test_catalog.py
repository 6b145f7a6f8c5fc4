"""LlamaFactory's catalogue: where a dataset lies and which format its rows have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cairn.data.catalog import entries
from cairn.data.format import Format
from cairn.errors import DataError
from cairn.records import Source

pytestmark = pytest.mark.unit

FIELD = Path(__file__).resolve().parents[3] / "shared" / "data" / "field" / "dataset_info.json"
MESSAGES = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}
MESSAGE_ROLES = {
    "user": "user", "assistant": "assistant", "system": "system", "observation": "tool", "function_call": "assistant",
}  # fmt: skip
CHANGED = {"from": "role", "value": "content"}


def catalog(folder: Path, **listed: Any) -> Path:
    path = folder / "dataset_info.json"
    path.write_text(json.dumps(listed))
    return path


def format_of(folder: Path, **entry: Any) -> dict[str, Any]:
    (found,) = entries(catalog(folder, one={"file_name": "x.json", **entry}), "one")
    return found.format


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({}, {"like": "alpaca"}),
        ({"columns": {"prompt": "instruction", "response": "output"}}, {"like": "alpaca"}),
        ({"columns": {"prompt": "q"}}, {"like": "alpaca", "rename": {"instruction": "q"}}),
        (
            {"columns": {"prompt": "q", "query": "context", "response": "a", "system": "s", "history": "h"}},
            {
                "like": "alpaca",
                "rename": {"instruction": "q", "input": "context", "output": "a", "system": "s", "history": "h"},
            },
        ),
        (
            {"columns": {"prompt": "input", "response": "target"}},
            {"like": "alpaca", "rename": {"instruction": "input", "output": "target", "input": "_none"}},
        ),
        ({"columns": {"tools": "apis"}}, {"like": "alpaca", "tools": "apis"}),
        ({"formatting": "sharegpt"}, {"like": "sharegpt"}),
        ({"formatting": "sharegpt", "columns": {"messages": "conversations", "tools": "tools"}}, {"like": "sharegpt"}),
        (
            {"formatting": "sharegpt", "columns": {"messages": "messages"}, "tags": MESSAGES},
            {"like": "sharegpt", "rename": {"conversations": "messages", **CHANGED}, "roles": MESSAGE_ROLES},
        ),
        (
            {"formatting": "sharegpt", "tags": {"user_tag": "Human"}},
            {
                "like": "sharegpt",
                "roles": {
                    "Human": "user",
                    "gpt": "assistant",
                    "system": "system",
                    "observation": "tool",
                    "function_call": "assistant",
                },
            },
        ),
        (
            {"formatting": "openai", "columns": {"messages": "dialog"}},
            {"like": "openai", "rename": {"messages": "dialog"}},
        ),
        ({"formatting": "openai", "tags": MESSAGES}, {"like": "openai"}),
        (
            {"ranking": True, "columns": {"prompt": "question", "chosen": "good", "rejected": "bad"}},
            {
                "like": "alpaca_preference",
                "rename": {"instruction": "question", "chosen": "good", "rejected": "bad"},
            },
        ),
        (
            {"ranking": True, "formatting": "sharegpt", "columns": {"messages": "conversations", "chosen": "chosen"}},
            {"like": "sharegpt_preference"},
        ),
        (
            {"columns": {"prompt": "prompt", "response": "completion", "kto_tag": "label"}},
            {
                "like": "alpaca_feedback",
                "rename": {"instruction": "prompt", "output": "completion", "kto_tag": "label"},
            },
        ),
        (
            {"formatting": "sharegpt", "columns": {"messages": "messages", "kto_tag": "label"}, "tags": MESSAGES},
            {
                "like": "sharegpt_feedback",
                "rename": {"conversations": "messages", "kto_tag": "label", **CHANGED},
                "roles": MESSAGE_ROLES,
            },
        ),
        ({"formatting": "openai", "columns": {"kto_tag": "label"}}, {"like": "openai_feedback"}),
    ],
)
def test_a_format_is_a_known_one_with_what_differs(
    entry: dict[str, Any], expected: dict[str, Any], tmp_path: Path
) -> None:
    assert format_of(tmp_path, **entry) == expected


def test_pretraining_reads_the_prompt_column_alone(tmp_path: Path) -> None:
    path = catalog(
        tmp_path,
        text={"file_name": "a.txt", "columns": {"prompt": "text"}},
        code={"file_name": "b.json", "columns": {"prompt": "content"}},
        chat={"file_name": "c.json", "formatting": "sharegpt"},
    )
    found = entries(path, ["text", "code", "chat"], documents=True)
    assert [entry.format for entry in found] == [
        {"like": "text"},
        {"like": "text", "rename": {"text": "content"}},
        {"like": "sharegpt"},
    ]


def test_where_the_data_is(tmp_path: Path) -> None:
    path = catalog(
        tmp_path,
        file={"file_name": "sub/a.json", "num_samples": 100},
        hub={"hf_hub_url": "org/set", "ms_hub_url": "other/set", "subset": "en", "split": "validation", "folder": "py"},
        old={"hf_hub_url": "org/set", "revision": "v1"},
    )
    file, hub, old = entries(tmp_path, ["file", "hub", "old"])
    assert entries(path, "file") == (file,)
    assert (file.path, file.limit, file.split) == (str(tmp_path / "sub" / "a.json"), 100, "train")
    assert (hub.path, hub.subset, hub.split, hub.folder) == ("hf://datasets/org/set", "en", "validation", "py")
    assert old.path == "hf://datasets/org/set@v1"


@pytest.mark.parametrize(
    ("entry", "parts"),
    [
        ({"columns": {"images": "pictures"}}, ["holds images", "text only"]),
        ({"columns": {"videos": "v", "audios": "a"}}, ["videos, audios"]),
        ({"file_name": None, "ms_hub_url": "x/y"}, ["ModelScope"]),
        ({"file_name": None, "om_hub_url": "x/y"}, ["Modelers"]),
        ({"file_name": None, "script_url": "x"}, ["no code is run"]),
        ({"file_name": None, "cloud_file_name": "x"}, ["s3://"]),
        ({"file_name": None}, ["does not say where", "file_name or hf_hub_url"]),
        ({"formatting": "sharegtp"}, ["no formatting 'sharegtp'", "did you mean 'sharegpt'"]),
        ({"columns": {"promt": "q"}}, ["no key 'promt'", "did you mean 'prompt'"]),
        ({"formatting": "sharegpt", "columns": {"query": "q"}}, ["columns of sharegpt", "no key 'query'"]),
        ({"formatting": "sharegpt", "tags": {"rol_tag": "r"}}, ["did you mean 'role_tag'"]),
        ({"formatting": "sharegpt", "tags": {"function_tag": "call"}}, ["function_tag 'call'"]),
        ({"formating": "sharegpt"}, ["did you mean 'formatting'"]),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(
    entry: dict[str, Any], parts: list[str], tmp_path: Path
) -> None:
    with pytest.raises(DataError) as caught:
        format_of(tmp_path, **entry)
    for part in (*parts, "one"):
        assert part in str(caught.value)


def test_an_unknown_name_gets_the_nearest(tmp_path: Path) -> None:
    path = catalog(tmp_path, alpaca_en_demo={"file_name": "a.json"})
    with pytest.raises(DataError, match="did you mean 'alpaca_en_demo'"):
        entries(path, "alpaca_en_dem")


@pytest.mark.parametrize("text", ["[]", "{", '{"a": 1}'])
def test_a_broken_catalogue_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "dataset_info.json").write_text(text)
    with pytest.raises(DataError, match=r"dataset_info\.json"):
        entries(tmp_path, "a")
    with pytest.raises(DataError, match="cannot be read"):
        entries(tmp_path / "missing.json", "a")


@pytest.mark.skipif(not FIELD.exists(), reason="the field's own catalogue does not lie beside this checkout")
def test_the_fields_own_catalogue_is_read_or_refused_entry_by_entry() -> None:
    names = json.loads(FIELD.read_text())
    found, refused = {}, {}
    for name in names:
        try:
            (found[name],) = entries(FIELD, name)
        except DataError as error:
            refused[name] = str(error)
    assert len(found) + len(refused) == len(names) > 90
    assert all("text only" in text or "ModelScope" in text for text in refused.values())
    assert found["kto_en_demo"].format["like"] == "sharegpt_feedback"
    assert found["dpo_en_demo"].format == {"like": "sharegpt_preference"}
    assert found["firefly"].format["rename"] == {"instruction": "input", "output": "target", "input": "_none"}
    for entry in found.values():
        layout = Format.load(entry.format)
        if Path(entry.path).exists():
            rows = json.loads(Path(entry.path).read_text(encoding="utf-8"))
            assert all(layout.records(row, Source(entry.path, line)) for line, row in enumerate(rows, start=1))
    assert Path(found["alpaca_en_demo"].path).exists()
    (text,) = entries(FIELD, "c4_demo", documents=True)
    assert text.format == {"like": "text"}
