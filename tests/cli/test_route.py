"""`cairn adapters route` and `routers`: what is printed, what is published, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.training.routed import publish_trained

from cairn.cli.main import run
from cairn.store.routers import Routers

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def storage(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("routed")
    publish_trained(folder / "storage", tiny_path, folder, count=40)
    return folder / "storage"


def test_a_router_is_trained_shown_and_published(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--storage", str(storage)]
    assert run(["adapters", "routers", *where]) == 0
    assert "cairn adapters route A B --publish NAME" in capsys.readouterr().out
    assert run(["adapters", "route", "words", "numbers", "--publish", "front", "--prompts", "30", *where]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["adapter", "prompts", "accuracy", "abstention", "routed_accuracy"] in lines
    assert next(line for line in lines if line[:1] == ["words@1"])[:3] == ["words@1", "6", "1.0000"]
    assert lines[-1][:2] == ["front@1:", "centroid,"]
    assert lines[-1][-2:] == ["--router", "front"]
    assert run(["adapters", "routers", *where]) == 0
    listed = capsys.readouterr().out.splitlines()[-1]
    assert listed.split()[:4] == ["front@1", "words@1,", "numbers@1", "1.0000"]
    assert run(["adapters", "routers", "front@1", *where]) == 0
    card, _, files = capsys.readouterr().out.partition("\nfiles: ")
    assert json.loads(card)["parents"] == ["words@1", "numbers@1"]
    assert files.strip() == str(storage / "routers" / "front" / "1")


def test_the_figures_as_json(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["words", "numbers", "--publish", "sure", "--kind", "linear", "--threshold", "1.1", "--json"]
    assert run(["adapters", "route", *asked, "--storage", str(storage)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["router"], found["kind"], found["threshold"]) == ("sure@1", "linear", 1.1)
    assert (found["abstention"], found["routed_accuracy"]) == (1.0, None)
    assert found["confusion"]["words@1"] == {"words@1": 0, "numbers@1": 0, "base": 8}


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["words", "--publish", "x"], "different adapters"),
        (["words", "nmbers", "--publish", "x"], "did you mean 'numbers'"),
        (["words", "numbers", "--publish", "words"], "'words' is an adapter"),
        (["words", "numbers", "--publish", "auto"], "reserved"),
        (["words", "numbers", "--publish", "x", "--threshold", "0.1", "--coverage", "0.5"], "leave one of them out"),
        (["words", "numbers", "--publish", "x", "--coverage", "0"], "take a share above 0"),
        (["words", "numbers", "--publish", "x", "--data", "legal=x.jsonl"], "names no file of words@1 or numbers@1"),
        (["words", "numbers", "--publish", "x", "--data", "words=missing.jsonl"], "--data words=FILE"),
    ],
)
def test_mistakes_are_told(arguments: list[str], part: str, storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["adapters", "route", *arguments, "--storage", str(storage)]) == 2
    assert part in " ".join(capsys.readouterr().err.split())
    assert "x" not in Routers(storage).names()
