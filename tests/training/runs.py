"""Whole runs on toy data with the tiny model, in this process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cairn.config.load import build
from cairn.config.recipe import Recipe
from cairn.data.pipeline import provided_local
from cairn.training.folder import CHECKPOINTS, claim
from cairn.training.local import LocalSession
from cairn.training.loop import run
from cairn.training.trackers.jsonl import read_metrics

WORDS = ("stone", "path", "marker", "hill", "rain", "north", "summit", "valley", "cloud", "moss")


def write_documents(path: Path, count: int, *, offset: int = 0) -> Path:
    """Pile-format lines of two subsets and varying length."""
    lines = []
    for i in range(offset, offset + count):
        text = " ".join(WORDS[(i * 7 + k * (i + 3)) % len(WORDS)] for k in range(4 + i % 9))
        lines.append({"text": text, "meta": {"pile_set_name": "Github" if i % 3 else "ArXiv"}})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def write_conversations(path: Path, count: int) -> Path:
    """OpenAI-format lines."""
    lines = [
        {
            "messages": [
                {"role": "user", "content": f"Which word follows {WORDS[i % len(WORDS)]}?"},
                {"role": "assistant", "content": " ".join(WORDS[(i + k) % len(WORDS)] for k in range(1, 2 + i % 4))},
            ]
        }
        for i in range(count)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def write_comparisons(path: Path, count: int) -> Path:
    """Pairs of answers: the chosen one names the words that follow, the rejected one those before."""
    lines = []
    for i in range(count):
        chosen = " ".join(WORDS[(i + k) % len(WORDS)] for k in range(1, 2 + i % 3))
        rejected = " ".join(WORDS[(i - k) % len(WORDS)] for k in range(1, 2 + (i + 1) % 3))
        lines.append({"prompt": f"Which word follows {WORDS[i % len(WORDS)]}?", "chosen": chosen, "rejected": rejected})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


WRITERS = {"pretrain": write_documents, "sft": write_conversations}
"""Of any other stage: comparisons."""


def recipe_for(folder: Path, model: Path, stage: str = "pretrain", /, **sections: Mapping[str, Any]) -> Recipe:
    """A recipe of 20 steps in fp32 over toy data in `folder`; `sections` override keys, plugin sections as a whole."""
    folder.mkdir(parents=True, exist_ok=True)
    write = WRITERS.get(stage, write_comparisons)
    values: dict[str, Any] = {
        "model": {"path": str(model)},
        "data": {"train": [str(write(folder / f"{stage}.jsonl", 40))], "sequence_length": 96},
        "stage": {"name": stage},
        "adapter": {"name": "lora", "rank": 4},
        "optimizer": {"name": "adamw", "learning_rate": 5e-3},
        "training": {"steps": 20, "global_batch": 4, "micro_batch": 2, "precision": "fp32"},
        "storage": {"path": str(folder / "storage"), "run": f"{stage}-run"},
    }
    for name, keys in sections.items():
        values[name] = {**values.get(name, {}), **keys} if name in ("data", "training", "storage") else dict(keys)
    return build(values)


class Stopped(Exception):
    """The run was stopped on purpose."""


class StoppingSession(LocalSession):
    """Dies right after the report of one step."""

    def __init__(self, folder: Path, stop_after: int | None) -> None:
        super().__init__(folder)
        self.stop_after = stop_after

    def report(self, metrics: Mapping[str, float], checkpoint: Path | None, *, name: str) -> None:
        """Report, then perhaps die."""
        super().report(metrics, checkpoint, name=name)
        if metrics["step"] == self.stop_after:
            raise Stopped


def run_local(recipe: Recipe, *, stop_after: int | None = None) -> list[dict[str, Any]]:
    """Carry out `recipe` here; the logged steps."""
    claim(recipe)
    session = StoppingSession(recipe.run_path / CHECKPOINTS, stop_after)
    try:
        with provided_local(recipe) as data:
            run(recipe, data.train, data.validation, session)
    except Stopped:
        return read_metrics(recipe.run_path)
    assert stop_after is None, "the run was not stopped"
    return read_metrics(recipe.run_path)


def losses(lines: list[dict[str, Any]]) -> list[float]:
    """The losses, with every step of the log exactly once and in order."""
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1)), [line["step"] for line in lines]
    return [line["loss"] for line in lines]
