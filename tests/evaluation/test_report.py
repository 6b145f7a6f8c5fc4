"""The report: keys, numbers, what lies on disk, and what happens when the disk fails."""

from __future__ import annotations

import errno
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cairn.errors import StorageError, UserError
from cairn.evaluation.report import Report, check_output
from cairn.evaluation.scores import DocumentScore
from cairn.metrics import Metric

pytestmark = pytest.mark.unit

LN_2 = math.log(2)
SCORES = (
    DocumentScore("a.jsonl", 1, "Github", 100, 40, 100 * LN_2),
    DocumentScore("a.jsonl", 2, "ArXiv", 300, 60, 600 * LN_2),
    DocumentScore("a.jsonl", 3, "ArXiv", 0, 0, 0.0),
)


def report(**changes: Any) -> Report:
    return Report(**{"scores": SCORES, "settings": {"model": "m", "window": 32}, "seconds": 2.0, **changes})


def test_report_json(tmp_path: Path) -> None:
    path = report().write(tmp_path / "new" / "folder")
    content = json.loads(path.read_text())
    assert path.name == "report.json"
    figures = content["bits_per_byte"]
    assert figures["micro"] == pytest.approx(700 / 400)
    assert figures["macro"] == pytest.approx((1 + 2) / 2)
    assert figures["pile_weighted"] == pytest.approx((7.59 * 1 + 8.96 * 2) / (7.59 + 8.96))
    assert figures["per_subset"] == pytest.approx({"ArXiv": 2.0, "Github": 1.0})
    assert (content["bytes"], content["tokens"], content["documents"]) == (400, 100, 3)
    assert content["nats"] == pytest.approx(700 * LN_2)
    assert content["byte_perplexity"] == pytest.approx(2 ** figures["micro"])
    assert content["subsets"]["ArXiv"]["documents"] == 2
    assert content["settings"] == {"model": "m", "window": 32}
    assert content["tokens_per_s"] == 50
    assert "bits_per_token_by_position" not in content


def test_documents_jsonl(tmp_path: Path) -> None:
    report().write(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "documents.jsonl").read_text().splitlines()]
    assert [list(line) for line in lines] == [["file", "line", "subset", "bytes", "tokens", "nats"]] * 3
    assert sum(line["nats"] for line in lines) / LN_2 / sum(line["bytes"] for line in lines) == pytest.approx(1.75)


def test_by_position(tmp_path: Path) -> None:
    found = report(by_position={0: Metric(3 * LN_2, 2), 3: Metric(8 * LN_2, 4)}).plain()
    assert found["bits_per_token_by_position"] == [
        {"from": 0, "to": 0, "tokens": 2, "bits_per_token": pytest.approx(1.5)},
        {"from": 4, "to": 7, "tokens": 4, "bits_per_token": pytest.approx(2.0)},
    ]


def test_table_names_every_figure() -> None:
    console = Console(width=120, record=True, file=open(os.devnull, "w"))  # noqa: SIM115 - the console's own
    console.print(report(by_position={0: Metric(1.0, 2)}, warnings=("odd tokenizer",)).table())
    text = console.export_text()
    for expected in (
        "Github",
        "1.0000",
        "ArXiv",
        "micro",
        "1.7500",
        "pile_weighted",
        "macro",
        "1.5000",
        "odd tokenizer",
    ):
        assert expected in text
    assert "by position" in text


def test_a_disk_that_fills_leaves_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report().write(tmp_path)
    fsync = os.fsync

    def full(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").rpartition("/")[2].startswith(".report.json"):
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        report().write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["documents.jsonl"]


def test_a_closed_door_is_found_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write there"):
        check_output(tmp_path / "file" / "inner")
    assert list(check_output(tmp_path / "good").iterdir()) == []
