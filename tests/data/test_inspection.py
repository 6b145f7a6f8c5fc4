"""What `cairn data inspect` says of files: formats, records, and exactly the text that would be trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cairn.cli.main import run
from cairn.data.encoding import Encoder
from cairn.data.inspection import inspect
from cairn.models.load import load_tokenizer
from cairn.records import Comparison, Conversation

pytestmark = pytest.mark.unit

ALPACA = {"instruction": "Add one and two.", "input": "", "output": "Three."}
CHAT = {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good day"}]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two formats, one bad row, and a file of no known format."""
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [ALPACA] * 5 + [{"instruction": "x"}]))
    (tmp_path / "b.json").write_text(json.dumps([CHAT, CHAT]))
    (tmp_path / "c.jsonl").write_text('{"qqq": 1}\n')
    return tmp_path


def test_every_file_is_named_with_its_format_and_counts(folder: Path) -> None:
    found = inspect([str(folder)])
    assert [(file.format, file.records, sum(file.dropped.values())) for file in found.files] == [
        ("alpaca", 5, 1),
        ("openai", 2, 0),
        (None, 0, 0),
    ]
    assert "rows with the keys qqq are of no known format" in found.files[2].problem
    assert found.formats == {
        "(unknown)": {"files": 1, "records": 0, "dropped": 0},
        "alpaca": {"files": 1, "records": 5, "dropped": 1},
        "openai": {"files": 1, "records": 2, "dropped": 0},
    }
    assert [shown.format for shown in found.samples] == ["alpaca"] * 3 + ["openai"] * 2


def test_trained_pieces_are_the_answers(folder: Path, tiny_path: Path) -> None:
    encoder = Encoder(load_tokenizer(str(tiny_path)), 512)
    found = inspect([str(folder / "a.jsonl")], encoder=encoder, samples=1)
    (rendering,) = found.samples[0].renderings
    trained = "".join(piece for piece, flag in rendering.pieces if flag)
    whole = "".join(piece for piece, _ in rendering.pieces)
    assert trained.startswith("Three.")
    assert "Add" not in trained
    assert "Add one and two." in whole
    assert 0 < rendering.trained_tokens < rendering.tokens


def test_a_pair_shows_both_answers_and_trains_no_prompt(tmp_path: Path, tiny_path: Path) -> None:
    row = {"prompt": "Say yes", "good": "Yes", "bad": "No"}
    (tmp_path / "p.jsonl").write_text(json.dumps(row) + "\n")
    mapping = tmp_path / "mine.yaml"
    mapping.write_text(
        "about: pairs\nrecord: comparison\nrequires: {prompt: string, good: string, bad: string}\n"
        "prompt: [{role: user, content: [prompt]}]\n"
        "chosen: [{role: assistant, content: [good]}]\nrejected: [{role: assistant, content: [bad]}]\n"
    )
    encoder = Encoder(load_tokenizer(str(tiny_path)), 512)
    found = inspect([str(tmp_path / "p.jsonl")], format=str(mapping), encoder=encoder)
    assert isinstance(found.samples[0].record, Comparison)
    said = {r.name: "".join(p for p, flag in r.pieces if flag) for r in found.samples[0].renderings}
    assert said["chosen"].startswith("Yes")
    assert said["rejected"].startswith("No")


def test_what_would_be_dropped_says_why(folder: Path, tiny_path: Path) -> None:
    found = inspect([str(folder / "a.jsonl")], encoder=Encoder(load_tokenizer(str(tiny_path)), 8), samples=1)
    assert "longer than a row" in found.samples[0].dropped


def test_the_command_prints_a_table_and_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "inspect", str(folder), "--samples", "1"]) == 0
    text = capsys.readouterr().out
    assert "alpaca" in text
    assert "user: Add one and two." in text
    assert "assistant: Three." in text
    assert run(["data", "inspect", str(folder), "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert set(plain) == {"formats", "files", "samples"}
    assert plain["samples"][0]["record"]["messages"][0]["content"] == "Add one and two."
    assert isinstance(inspect([str(folder / "b.json")]).samples[0].record, Conversation)


def test_bad_arguments_are_the_users_to_mend(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "inspect", str(folder / "none.jsonl")]) == 2
    assert run(["data", "inspect", str(folder), "--format", "alpacca"]) == 2
    assert "did you mean 'alpaca'" in capsys.readouterr().err
