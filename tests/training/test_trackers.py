"""Trackers hold every step exactly once, whatever was restarted."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cairn.config.load import build
from cairn.plugins import TRACKERS
from cairn.training.trackers.jsonl import METRICS, read_metrics

pytestmark = pytest.mark.unit


def run_in(folder: Path) -> Any:
    """What a tracker sees of a run whose folder is under `folder`."""
    values = {
        "model": {"path": "model"},
        "data": {"train": ["x.jsonl"]},
        "stage": "sft",
        "storage": {"path": str(folder), "run": "mine"},
    }
    recipe = build(values)
    recipe.run_path.mkdir(parents=True, exist_ok=True)
    return SimpleNamespace(recipe=recipe)


def write(name: str, run: Any, steps: range, *, resumed_at: int, shift: float = 0.0, **config: Any) -> None:
    tracker = TRACKERS.load(name)
    tracker = tracker(tracker.Config.parse(config))
    tracker.open(run, resumed_at=resumed_at)
    for step in steps:
        tracker.write(step, {"loss": step + shift, "note": None})
        tracker.write_text(step, "samples", f"said at {step}")
    tracker.close()


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
    assert [event.step for event in texts] == list(range(1, 10))
    assert texts[-1].tensor_proto.string_val[0] == b"said at 9"


@pytest.mark.parametrize("name", TRACKERS.names())
def test_every_tracker_keeps_the_contract(name: str, tmp_path: Path) -> None:
    tracker = TRACKERS.load(name)
    assert tracker.__doc__
    assert tracker.Config.parse(tracker.Config().model_dump(mode="json")) == tracker.Config()
    write(name, run_in(tmp_path), range(1, 3), resumed_at=0)
    assert any(path.is_file() for path in tmp_path.rglob("*"))
