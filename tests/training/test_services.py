"""Trackers whose services cannot take a step back, for real: wandb offline, MLflow's file store; and what refuses a run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.training.tracked import run_in, write
from tests.training.wandb_files import history

from cairn.errors import UserError
from cairn.training.journal import Journal

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("group")]

STEPS = [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (5, 5.0), (6, 6.0), (7, 7.0), (8, 8.5), (9, 9.5)]
"""What a service holds that cannot take steps back: of 5 to 7, done twice, the first time."""


def settled(folder: Path, count: int) -> list[dict[str, Any]]:
    """The history, when wandb's own process, which outlives `finish`, has written down `count` rows."""
    for _ in range(100):
        rows = history(folder)
        if len(rows) >= count:
            return rows
        time.sleep(0.1)
    return rows


def test_wandb_offline_holds_each_step_once_as_one_run(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    write("wandb", run, range(1, 8), resumed_at=0, mode="offline", project="mine")
    write("wandb", run, range(5, 10), resumed_at=4, shift=0.5, mode="offline", project="mine")
    rows = settled(run.recipe.run_path, len(STEPS))
    assert [(row["_step"], row["loss"]) for row in rows] == STEPS
    assert not any("note" in row for row in rows)
    assert all(row["samples/_type"] == "html-file" for row in rows)
    files = list(run.recipe.run_path.glob("wandb/offline-run-*/*.wandb"))
    assert len({file.stem for file in files}) == 1 < len(files)
    assert any("said at 9" in file.read_text() for file in run.recipe.run_path.rglob("*.html"))


def test_mlflow_files_hold_each_step_once_as_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = run_in(tmp_path)
    write("mlflow", run, range(1, 8), resumed_at=0, experiment="mine")
    write("mlflow", run, range(5, 10), resumed_at=4, shift=0.5, experiment="mine")
    client = MlflowClient((tmp_path / "mlflow").as_uri())
    (found,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert [(point.step, point.value) for point in client.get_metric_history(found.info.run_id, "loss")] == STEPS
    assert found.data.params["training.global_batch"] == "8"
    assert (found.info.run_name, found.info.status) == ("mine", "FINISHED")
    texts = client.list_artifacts(found.info.run_id, "samples")
    assert [Path(text.path).stem for text in texts] == [f"step_{step:08d}" for step in range(1, 10)]


@pytest.mark.parametrize(
    ("tracker", "said"),
    [
        ({"name": "mlflow", "uri": "strange://here"}, "the tracker 'mlflow' cannot start"),
        ({"name": "wandb", "mode": "online"}, "the tracker 'wandb' cannot start"),
        ("prometheus", "there is no Ray here"),
    ],
)
def test_a_tracker_that_cannot_start_refuses_the_run(
    tracker: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HOME", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    for variable in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(variable, raising=False)
    run = run_in(tmp_path, trackers=["jsonl", tracker])
    with pytest.raises(UserError, match=said):
        Journal(run, resumed_at=0)
