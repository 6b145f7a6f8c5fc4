"""Searches on a tiny model: trials are stopped early, a driver is killed in the middle and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.cluster

STEPS, RUNG = 4, 2
GOOD, BAD = 2e-2, 1e-7
DRIVER = Path(__file__).with_name("drive_search.py")


SIX = {"trials": 6, "concurrent": 2, "seed": 51}
"""Four trials that learn, then two that do not: whatever the timing, ASHA stops these two at its first rung."""
TWO = {"trials": 2, "concurrent": 1, "seed": 4}
"""One that learns, then one that does not."""


def write_recipe(folder: Path, model: Path, search: dict[str, int]) -> Path:
    """A search over the learning rate."""
    rows = [{"instruction": f"count to {i}", "input": "", "output": " ".join(map(str, range(i)))} for i in range(2, 14)]
    (folder / "rows.json").write_text(json.dumps(rows))
    recipe = {
        "model": {"path": str(model)},
        "data": {"train": [str(folder / "rows.json")], "format": "alpaca", "sequence_length": 128},
        "stage": {"name": "sft"},
        "adapter": {"name": "lora", "rank": 4},
        "schedule": {"name": "constant"},
        "training": {
            "steps": STEPS,
            "global_batch": 2,
            "precision": "fp32",
            "cpus_per_worker": 1.0,
            "trackers": ["jsonl", "tensorboard"],
        },
        "search": {
            "space": {"optimizer.learning_rate": {"choices": [GOOD, BAD]}},
            "grace_steps": RUNG,
            "reduction": 2,
            **search,
        },
        "storage": {"path": str(folder / "storage"), "run": "rates"},
    }
    path = folder / "recipe.json"
    path.write_text(json.dumps(recipe))
    return path


def start(recipe: Path, log: Path) -> subprocess.Popen[str]:
    """The driver, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, str(DRIVER), str(recipe)],
        stdout=subprocess.PIPE,
        stderr=log.open("a"),
        text=True,
        start_new_session=True,
        cwd=DRIVER.parents[2],
        env={**os.environ, "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0"},  # one process less for each trial
    )


def trials_in(folder: Path) -> dict[str, dict[str, Any]]:
    """The table as it stands."""
    path = folder / "trials.json"
    return {row["id"]: row for row in json.loads(path.read_text())["trials"]} if path.is_file() else {}


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    """Until it holds; fails when it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def over(folder: Path) -> list[str]:
    """Trials that need no more work."""
    return [name for name, row in trials_in(folder).items() if row["status"] in ("finished", "stopped early")]


def test_a_trial_that_does_not_learn_is_stopped_early(tmp_path: Path, tiny_path: Path) -> None:
    driver = start(write_recipe(tmp_path, tiny_path, TWO), tmp_path / "log")
    out, _ = driver.communicate(timeout=400)
    assert driver.returncode == 0, (tmp_path / "log").read_text()[-3000:]
    table = json.loads(out.strip().splitlines()[-1])
    assert [(row["status"], row["optimizer.learning_rate"], row["step"]) for row in table] == [
        ("finished", GOOD, STEPS),
        ("stopped early", BAD, RUNG),
    ]
    for row in table:
        check_trial(tmp_path / "storage" / "searches" / "rates", row)


@pytest.mark.full
def test_two_of_six_trials_stop_early_and_a_killed_search_goes_on(tmp_path: Path, tiny_path: Path) -> None:
    recipe, log = write_recipe(tmp_path, tiny_path, SIX), tmp_path / "log"
    folder = tmp_path / "storage" / "searches" / "rates"
    first = start(recipe, log)
    try:
        wait_for(lambda: len(over(folder)) >= 2 or first.poll() is not None, 300)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    assert first.returncode == -signal.SIGKILL, log.read_text()[-3000:]
    before = trials_in(folder)
    assert len(over(folder)) < 6
    second = start(recipe, log)
    out, _ = second.communicate(timeout=400)
    assert second.returncode == 0, log.read_text()[-3000:]

    table = json.loads(out.strip().splitlines()[-1])
    after = trials_in(folder)
    assert [(row["status"], row["optimizer.learning_rate"], row["step"]) for row in table] == [
        ("finished", GOOD, STEPS)
    ] * 4 + [("stopped early", BAD, RUNG)] * 2
    for name in (name for name, row in before.items() if row["status"] in ("finished", "stopped early")):
        assert after[name] == before[name], "what was over is not done again"
    assert [row["loss"] for row in table] == sorted(row["loss"] for row in table)
    plan = json.loads((folder / "search.json").read_text())
    assert {row["trial"]: row["optimizer.learning_rate"] for row in table} == {
        f"trial_{i:02d}": changes["optimizer.learning_rate"] for i, changes in enumerate(plan["draws"])
    }
    for row in table:
        check_trial(folder, row)


def check_trial(folder: Path, row: dict[str, Any]) -> None:
    """A trial's run folder is an ordinary one; Tune has real checkpoints of it; each step stands once in its log."""
    run = folder / "runs" / row["trial"]
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, len(steps) + 1))
    assert list((run / "tensorboard").glob("events*"))
    assert (run / "adapter" / "adapter_model.safetensors").is_file() == (row["status"] == "finished")
    kept = list((folder / "tune").glob(f"start_*/{row['trial']}/checkpoint_*/checkpoint.json"))
    assert kept
    assert max(json.loads(path.read_text())["step"] for path in kept) == row["step"]
