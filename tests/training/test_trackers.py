"""Trackers hold every step exactly once, whatever was restarted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.training.tracked import run_in, write

from cairn.errors import UserError
from cairn.plugins import TRACKERS
from cairn.training.journal import Journal
from cairn.training.trackers.jsonl import METRICS, read_metrics

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("group")]


def test_jsonl_takes_back_what_is_done_again(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    folder = run.recipe.run_path
    write("jsonl", run, range(1, 8), resumed_at=0)
    with (folder / METRICS).open("a") as file:
        file.write('{"step": 8, "loss": ')
    assert [line["step"] for line in read_metrics(folder)] == list(range(1, 8))
    write("jsonl", run, range(5, 10), resumed_at=4, shift=0.5)
    lines = read_metrics(folder)
    assert [(line["step"], line["loss"]) for line in lines] == [
        (1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (5, 5.5), (6, 6.5), (7, 7.5), (8, 8.5), (9, 9.5)
    ]  # fmt: skip


def test_tensorboard_shows_each_step_once(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = run_in(tmp_path)
    write("tensorboard", run, range(1, 8), resumed_at=0)
    write("tensorboard", run, range(5, 10), resumed_at=4, shift=0.5)
    found = EventAccumulator(str(run.recipe.run_path / "tensorboard")).Reload()
    events = found.Scalars("loss")
    assert [event.step for event in events] == list(range(1, 10))
    assert [event.value for event in events[4:]] == [5.5, 6.5, 7.5, 8.5, 9.5]
    texts = found.Tensors("samples/text_summary")
    assert {event.step for event in texts} == set(range(1, 10))
    assert texts[-1].tensor_proto.string_val[0] == b"said at 9"


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match="needs a package that is not installed") as refused:
        Journal(run_in(tmp_path, trackers=["wandb"]), resumed_at=0)
    assert "cairn[track]" in refused.value.next_step


def test_the_contract_of_every_tracker() -> None:
    """The services write in `test_services.py`, Prometheus in `test_prometheus.py`."""
    assert set(TRACKERS.names()) == {"jsonl", "tensorboard", "wandb", "mlflow", "prometheus"}
    for name in TRACKERS.names():
        tracker = TRACKERS.load(name)
        assert tracker.Config.parse(tracker.Config().model_dump(mode="json")) == tracker.Config()
