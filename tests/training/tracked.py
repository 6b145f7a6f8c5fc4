"""What a tracker sees of a run, without the run; needs a process group."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cairn.config.load import build
from cairn.plugins import TRACKERS
from cairn.training.local import LocalSession


def run_in(folder: Path, **training: Any) -> Any:
    """What a tracker sees of a run whose folder is under `folder`."""
    values = {
        "model": {"path": "model"},
        "data": {"train": ["x.jsonl"]},
        "stage": "sft",
        "training": training,
        "storage": {"path": str(folder), "run": "mine"},
    }
    recipe = build(values)
    recipe.run_path.mkdir(parents=True, exist_ok=True)
    session = LocalSession(folder / "checkpoints")
    return SimpleNamespace(recipe=recipe, session=session, total_steps=9)


def write(name: str, run: Any, steps: range, *, resumed_at: int, shift: float = 0.0, **config: Any) -> None:
    tracker = TRACKERS.load(name)
    tracker = tracker(tracker.Config.parse(config))
    tracker.open(run, resumed_at=resumed_at)
    for step in steps:
        tracker.write_text(step, "samples", f"said at {step}")
        tracker.write(step, {"loss": step + shift, "note": None})
    tracker.close()
