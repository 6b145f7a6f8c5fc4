"""`cairn compare` from its arguments to its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.training.runs import write_documents

from cairn.cli.main import run

pytestmark = pytest.mark.slow


def test_tables_figures_and_page(storage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = write_documents(tmp_path / "text.jsonl", 4)
    options = ["--storage", str(storage), "--files", str(text), "--output", str(tmp_path / "out")]
    few = ["--answers", "2", "--max-tokens", "8", "--limit", "6", "--by", "margin"]
    assert run(["compare", "dpo", "reward", str(storage / "runs" / "sft"), *options, *few]) == 0, capsys.readouterr()
    said = capsys.readouterr().out
    found = json.loads((tmp_path / "out" / "comparison.json").read_text())
    margins = {one["name"]: one["figures"]["margin"] for one in found["runs"]}
    assert list(margins) == sorted(margins, key=lambda name: -margins[name])
    assert "6 held-out pairs, ranked by margin" in said
    for part in ("KL", "Peak memory", "Github", "GiB", *margins, "tiny", "comparison.html"):
        assert part in said, part
    page = (tmp_path / "out" / "comparison.html").read_text()
    assert "Which word follows" in page
    assert '"held_out_loss"' in page


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["compare"], "Missing"),
        (["compare", "absent"], "there is no run 'absent'"),
        (["compare", "dpo", "--by", "acuracy"], "did you mean 'accuracy'"),
    ],
)
def test_what_is_refused(
    arguments: list[str], part: str, storage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, "--storage", str(storage), "--output", str(tmp_path / "out")]) == 2
    assert part in capsys.readouterr().err
