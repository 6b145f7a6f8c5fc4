"""Cairn's own loop in this process, `cairn.training.loop.run`, or the same model in a bare PyTorch loop."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tests.benchmarks.contenders.stopwatch import Stopwatch

from cairn.config.load import build as build_recipe
from cairn.config.recipe import Recipe
from cairn.data.batch import Batch
from cairn.data.pipeline import provided_local
from cairn.stages.base import Models
from cairn.training import loop
from cairn.training.batches import next_batches
from cairn.training.folder import claim
from cairn.training.local import LocalSession, process_group
from cairn.training.run import build


class Done(Exception):
    """Enough steps were taken: the checkpoint at a run's end is no step's cost."""


class TimedSession(LocalSession):
    """Ends the run after `steps` steps."""

    def __init__(self, folder: Path, watch: Stopwatch, steps: int) -> None:
        super().__init__(folder)
        self.watch, self.steps = watch, steps

    def report(self, metrics: Mapping[str, float], checkpoint: Path | None, *, name: str) -> None:
        """Note the step."""
        super().report(metrics, checkpoint, name=name)
        self.watch.step_ends()
        if self.watch.steps == self.steps:
            raise Done


def main() -> None:
    """Train as the settings say."""
    settings = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(settings["threads"])
    with tempfile.TemporaryDirectory() as scratch, process_group(Path(scratch) / "meet"):
        recipe = recipe_of(settings, Path(scratch))
        watch = Stopwatch(settings["warmup"])
        session = TimedSession(Path(scratch) / "checkpoints", watch, settings["steps"])
        count_work(watch)
        with provided_local(recipe) as data:
            if settings["trainer"] == "bare":
                bare(recipe, data.train, session)
            else:
                claim(recipe)
                try:
                    loop.run(recipe, data.train, (), session)
                except Done:
                    watch.show()


def recipe_of(settings: dict[str, Any], folder: Path) -> Recipe:
    """LoRA of the settings' rank over every linear; one step more than is counted, so that none is the last."""
    return build_recipe(
        {
            "model": {"path": settings["model"]},
            "data": {"train": [settings["data"]], "sequence_length": settings["length"]},
            "stage": settings["stage"],
            "adapter": {"name": "lora", "rank": settings["rank"], "targets": "all-linear"},
            "optimizer": {"name": "adamw", "learning_rate": 1e-4},
            "training": {
                "steps": settings["steps"] + 1,
                "global_batch": settings["rows_a_step"],
                "micro_batch": settings["rows_a_pass"],
                "precision": settings["precision"],
                "trackers": ["jsonl"],
            },
            "storage": {"path": str(folder / "storage"), "run": "benchmark"},
        }
    )


def count_work(watch: Stopwatch) -> None:
    """Let every global batch that is taken be counted."""

    def counted(*given: Any) -> tuple[list[Batch], Any]:
        batches, cursor = next_batches(*given)
        for batch in batches:
            pairs = 0 if batch.answers is None else len(batch.answers.signs) // 2
            watch.add(tokens=int((batch.segments > 0).sum()), trained=int((batch.weights > 0).sum()), pairs=pairs)
        return batches, cursor

    loop.next_batches = counted


def bare(recipe: Recipe, train: Path, session: TimedSession) -> None:
    """The same model, rows and stage with torch alone: no engine, journal, checkpoint or figure but the loss."""
    run = build(recipe, train, (), session)
    model, stage = run.engine.model.train(), run.stage
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4)
    cursor = loop.checkpoint.resume(run)[1]
    for _ in range(session.steps):
        batches, cursor = loop.next_batches(run, cursor)
        weight = sum(stage.weight(batch) for batch in batches)
        for batch in batches:
            output = stage.loss(batch, Models(model))
            output.total.item()
            (output.total / weight).backward()
        torch.nn.utils.clip_grad_norm_(trained, recipe.training.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
        session.watch.step_ends()
    session.watch.show()


if __name__ == "__main__":
    main()
