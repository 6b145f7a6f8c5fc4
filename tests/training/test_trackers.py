"""Trackers hold every step exactly once, whatever was restarted."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.plugins import TRACKERS
from cairn.training.trackers.jsonl import METRICS, read_metrics

pytestmark = pytest.mark.unit


def write(name: str, folder: Path, steps: range, *, resumed_at: int, shift: float = 0.0) -> None:
    tracker = TRACKERS.load(name)()
    tracker.open(folder, resumed_at=resumed_at)
    for step in steps:
        tracker.write(step, {"loss": step + shift, "note": None})
    tracker.close()


def test_jsonl_takes_back_what_is_done_again(tmp_path: Path) -> None:
    write("jsonl", tmp_path, range(1, 8), resumed_at=0)
    with (tmp_path / METRICS).open("a") as file:
        file.write('{"step": 8, "loss": ')
    assert [line["step"] for line in read_metrics(tmp_path)] == list(range(1, 8))
    write("jsonl", tmp_path, range(5, 10), resumed_at=4, shift=0.5)
    lines = read_metrics(tmp_path)
    assert [(line["step"], line["loss"]) for line in lines] == [
        (1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (5, 5.5), (6, 6.5), (7, 7.5), (8, 8.5), (9, 9.5)
    ]  # fmt: skip


def test_tensorboard_shows_each_step_once(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    write("tensorboard", tmp_path, range(1, 8), resumed_at=0)
    write("tensorboard", tmp_path, range(5, 10), resumed_at=4, shift=0.5)
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload().Scalars("loss")
    assert [event.step for event in events] == list(range(1, 10))
    assert [event.value for event in events[4:]] == [5.5, 6.5, 7.5, 8.5, 9.5]


@pytest.mark.parametrize("name", TRACKERS.names())
def test_every_tracker_keeps_the_contract(name: str, tmp_path: Path) -> None:
    tracker = TRACKERS.load(name)
    assert tracker.__doc__
    assert tracker.Config.parse(tracker.Config().model_dump(mode="json")) == tracker.Config()
    write(name, tmp_path, range(1, 3), resumed_at=0)
    assert any(path.is_file() for path in tmp_path.rglob("*"))
