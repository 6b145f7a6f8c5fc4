"""What each verb does with good and bad input, short of a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cairn.cli.main import run
from cairn.cli.quickstart import ADAPTED, Findings, write_held_out
from cairn.cli.quickstart_report import next_steps, show, verdict, write
from cairn.config.load import build
from cairn.store.card import Base, Facts
from cairn.store.store import Store

pytestmark = pytest.mark.unit


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """A storage folder with two versions of one adapter."""
    folder = tmp_path / "made"
    folder.mkdir()
    (folder / "adapter_config.json").write_text("{}")
    store = Store(tmp_path / "storage" / "adapters")
    for _ in range(2):
        store.publish("support", folder, Facts(base=Base(path="m"), method="lora", stage="sft"))
    return tmp_path / "storage"


def test_adapters_are_listed_shown_and_promoted(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--storage", str(storage)]
    assert run(["adapters", "promote", "support@1", "prod", *where]) == 0
    assert "support@prod is now support@1" in capsys.readouterr().out
    assert run(["adapters", "list", *where]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("support@2"))
    assert "lora" in line
    assert "prod→1" in line
    assert run(["adapters", "show", "support@prod", *where]) == 0
    text = capsys.readouterr().out
    assert json.loads(text.partition("\nfiles: ")[0])["version"] == 1
    assert str(storage / "adapters" / "support" / "1") in text


def test_an_empty_store_says_how_to_fill_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["adapters", "list", "--storage", str(tmp_path)]) == 0
    assert "cairn train RECIPE storage.publish=NAME" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["adapters", "show", "suport"], "did you mean 'support'"),
        (["adapters", "promote", "support@9", "prod"], "has no version 9"),
        (["adapters", "promote", "support@1", "../x"], "cannot be an alias"),
        (["export", "support@9", "--to", "peft", "--output", "x"], "has no version 9"),
        (["export", "support", "--to", "pfet", "--output", "x"], "did you mean 'peft'"),
    ],
)
def test_a_wrong_reference_is_named(
    storage: Path, arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, "--storage", str(storage)]) == 2
    assert part in capsys.readouterr().err


def test_evaluate_takes_several_files_behind_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import cairn.cluster.evaluation as evaluation

    seen: list[evaluation.EvaluationJob] = []

    class Shown:
        def table(self) -> str:
            return "table"

    def evaluate(job: evaluation.EvaluationJob, on_progress: object) -> Shown:
        seen.append(job)
        return Shown()

    import contextlib

    import cairn.cluster.session as session

    monkeypatch.setattr(evaluation, "evaluate", evaluate)
    monkeypatch.setattr(evaluation.EvaluationJob, "check", lambda job: None)
    monkeypatch.setattr(session, "connected", lambda: contextlib.nullcontext())
    arguments = ["evaluate", "--model", "m", "--data", "a.zst", "b.zst", "--window", "64", "--limit", "3"]
    assert run([*arguments, "--output", str(tmp_path)]) == 0, capsys.readouterr()
    assert seen[0].data == ("a.zst", "b.zst")
    assert (seen[0].window, seen[0].limit, seen[0].precision) == (64, 3, "fp32")


@pytest.mark.parametrize("arguments", [["evaluate", "--model", "m"], ["serve"], ["export", "x"], ["submit", "train"]])
def test_a_missing_argument_is_the_users_mistake(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert "Missing" in capsys.readouterr().err


def findings(adapted: float, other: float) -> Findings:
    before = {"micro": 1.0, "per_subset": {ADAPTED: 1.0, "Github": 0.9}}
    after = {"micro": 0.9, "per_subset": {ADAPTED: adapted, "Github": other}}
    return Findings(
        seconds={"train": 2.0},
        bpb_before=before,
        bpb_after=after,
        answers={"base": "no [idea]"},
        places={"run": "/r"},
    )


@pytest.mark.parametrize(
    ("adapted", "other", "expected"),
    [
        (0.8, 0.9, "On what it was trained for: 20.0% fewer bits per byte; no other subset lost."),
        (0.8, 0.95, "On what it was trained for: 20.0% fewer bits per byte; more bits on Github."),
        (1.1, 0.9, "On what it was trained for: no gain: 10.0% more bits per byte; no other subset lost."),
    ],
)
def test_the_quickstart_says_honestly_what_changed(adapted: float, other: float, expected: str) -> None:
    assert verdict(findings(adapted, other)) == expected


def test_the_quickstart_reports_to_people_and_programs(cairn_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = findings(0.8, 0.9)
    path = write(found)
    assert path == cairn_home / "quickstart.json"
    plain = json.loads(path.read_text())
    assert plain["bpb_before"]["per_subset"][ADAPTED] == 1.0
    assert plain["bpb_after"]["micro"] == 0.9
    assert plain["seconds"] == {"train": 2.0}
    show(found, path)
    text = capsys.readouterr().out
    for part in ("-20.0%", "no [idea]", "/r", str(path), *next_steps()):
        assert part in text
    assert len(next_steps()) == 3


def test_the_held_out_file_is_of_the_adapted_subset(
    cairn_home: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CAIRN_HOME", str(tmp_path))
    (tmp_path / "sample").mkdir()
    turns = [{"role": "user", "content": "def f():"}, {"role": "assistant", "content": "Return nothing."}]
    (tmp_path / "sample" / "openai_heldout.jsonl").write_text((json.dumps({"messages": turns}) + "\n") * 3)
    recipe = build({"model": {"path": str(tiny_path)}, "data": {"train": ["x"]}, "stage": "sft"})
    rows = [json.loads(line) for line in write_held_out(recipe).read_text().splitlines()]
    assert len(rows) == 3
    assert rows[0]["meta"] == {"pile_set_name": ADAPTED}
    assert rows[0]["text"].endswith("<|im_start|>assistant\nReturn nothing.<|im_end|>\n")
