"""Jobs on a cluster that has the dependencies and not Cairn: what `ray job submit` and `cairn submit` bring along."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.bare import Head, build_interpreter, ray_head

from cairn.cli.main import run
from cairn.store.store import Store

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    folder = tmp_path_factory.mktemp("bare")
    python = build_interpreter(folder / "venv")
    with ray_head(python, num_cpus=3, CAIRN_HOME=str(folder / "home")) as started:
        yield started


@pytest.fixture(scope="module")
def overrides(tmp_path_factory: pytest.TempPathFactory, tiny_path: Path) -> list[str]:
    """The quickstart's recipe made tiny."""
    folder = tmp_path_factory.mktemp("jobs")
    rows = [{"instruction": f"say {n}", "input": "", "output": f"it is {n}"} for n in range(40)]
    (folder / "train.json").write_text(json.dumps(rows))
    return [
        f"model.path={tiny_path}",
        f"data.train=[{folder / 'train.json'}]",
        "data.validation=[]",
        "data.sequence_length=128",
        "training.steps=2",
        "training.cpus_per_worker=0.5",
        f"storage.path={folder / 'storage'}",
        "storage.run=job",
        "storage.publish=from-a-job",
    ]


def storage_of(overrides: list[str]) -> Path:
    return Path(next(item for item in overrides if item.startswith("storage.path=")).partition("=")[2])


def test_cairn_is_not_there(head: Head) -> None:
    code = "import torch, ray, deepspeed\ntry:\n    import cairn\nexcept ModuleNotFoundError:\n    print('absent')"
    done = subprocess.run(
        [str(head.python), "-c", code], env=head.environment, cwd="/", capture_output=True, text=True, check=True
    )
    assert done.stdout.strip().splitlines()[-1] == "absent"


def test_the_readmes_job_trains_on_two_workers_and_publishes(head: Head, overrides: list[str]) -> None:
    done = head.ray(
        "job", "submit", "--address", head.jobs_address, "--working-dir", ".", "--",
        "python", "jobs/train.py", "jobs/recipes/quickstart.yaml", *overrides, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    storage = storage_of(overrides)
    lines = [json.loads(line) for line in (storage / "runs" / "job" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [1, 2]
    assert Store(storage / "adapters").resolve("from-a-job").card.run == "job"


def test_cairn_submit_needs_nothing_of_the_repository(
    head: Head,
    overrides: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "mine.yaml").write_text((ROOT / "jobs" / "recipes" / "quickstart.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    arguments = ["--address", head.jobs_address, "mine.yaml", *overrides, "data.sequence_length=64"]
    assert run(["submit", "prepare", *arguments]) == 0, capsys.readouterr()
    captured = capsys.readouterr()
    assert "job prepare-job-1 submitted" in captured.err
    assert "token shards: " in captured.out
    shards = Path(captured.out.partition("token shards: ")[2].split("\n")[0])
    assert shards.is_dir()
    assert str(shards).startswith(head.environment["CAIRN_HOME"])

    assert run(["submit", "prepare", *arguments, "data.train=[/nowhere/x.json]"]) == 1
    captured = capsys.readouterr()
    assert "job prepare-job-2 submitted" in captured.err
    assert "ended as FAILED" in captured.err
    assert "/nowhere/x.json" in captured.out
