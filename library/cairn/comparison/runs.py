"""Finished runs, found by name or folder, with what they cost; refused where they cannot be compared.

A run is what training leaves in its folder: recipe, state, metrics and the adapter with its note. Reading it needs no
weights.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cairn.config.load import build
from cairn.config.recipe import PLUGIN_LISTS, Recipe
from cairn.errors import UserError, did_you_mean
from cairn.evaluation.subject import Subject
from cairn.plugins import STAGES
from cairn.training.folder import ADAPTER, RECIPE, RUN
from cairn.training.start import start_of
from cairn.training.state import FINISHED, STATE, read_state
from cairn.training.trackers.jsonl import read_metrics


@dataclass(frozen=True)
class FinishedRun:
    """`note` is what training left beside the adapter: base, stage, step, metrics."""

    name: str
    folder: Path
    recipe: Recipe
    note: dict[str, Any]

    @property
    def stage(self) -> str:
        """The stage's name; of a file of the user's own its stem."""
        return Path(self.recipe.stage.name).stem

    @property
    def scores(self) -> bool:
        """Whether the result is a reward model, which scores and does not speak."""
        return STAGES.load(self.recipe.stage.name, self.recipe.stage.source).head == "score"

    @property
    def base_sha256(self) -> str:
        """The hash of the base model's weights."""
        return str(self.note["base"]["sha256"])

    def base(self, precision: str) -> Subject:
        """The base model, to load."""
        model = self.recipe.model
        return Subject(
            model=model.path,
            precision=precision,
            attention=model.attention,
            revision=model.revision,
            trust_remote_code=model.trust_remote_code,
            quantization=model.quantized,
        )

    def subject(self, precision: str) -> Subject:
        """The result, to load. A LoRA that was trained on a whole model (`model.adapter`) stands on that."""
        result = replace(self.base(precision), adapter=str(self.folder / ADAPTER))
        start = None if result.is_whole_model else start_of(self.recipe)
        if start is None or not start.is_whole_model:
            return result
        return replace(result, model=str(start.folder), revision=None)

    @cached_property
    def costs(self) -> dict[str, float | None]:
        """Steps, tokens read in training (no padding), seconds in steps, and the peak memory of a worker in bytes.

        A step that was not logged counts as the mean of those that were; what no line holds is None.
        """
        steps, lines = int(read_state(self.folder)["step"]), read_metrics(self.folder)

        def over_all(name: str) -> float | None:
            values = [line[name] for line in lines if line.get(name) is not None]
            return sum(values) / len(values) * steps if values else None

        peaks = [line["peak_memory_bytes"] for line in lines if line.get("peak_memory_bytes") is not None]
        return {
            "steps": steps,
            "tokens": over_all("tokens"),
            "seconds": over_all("step_seconds"),
            "peak_memory_bytes": max(peaks, default=None),
        }


def find_runs(references: Sequence[str], *, storage: Path) -> list[FinishedRun]:
    """The runs in their order, each once: names under `storage`/runs, or folders.

    Raises UserError for what is no run, is not finished, or was made of another base model than the first.
    """
    folders = dict.fromkeys(_folder(reference, storage) for reference in references)
    names = [folder.name for folder in folders]
    runs = [_read(folder, folder.name if names.count(folder.name) == 1 else str(folder)) for folder in folders]
    for other in runs[1:]:
        if other.base_sha256 != runs[0].base_sha256:
            raise UserError(
                f"'{runs[0].name}' was made of {runs[0].note['base']['path']}, '{other.name}' of another base model, "
                f"{other.note['base']['path']}",
                next_step="compare runs of one base model",
            )
    return runs


def _folder(reference: str, storage: Path) -> Path:
    runs = storage / "runs"
    for folder in (runs / reference, Path(reference).expanduser()):
        if (folder / STATE).is_file():
            return folder.resolve()
    known = sorted(path.parent.name for path in runs.glob(f"*/{STATE}"))
    raise UserError(
        f"there is no run '{reference}'",
        where=str(runs),
        next_step=did_you_mean(reference, known) if known else "train one first, or give --storage",
    )


def _read(folder: Path, name: str) -> FinishedRun:
    state = read_state(folder)
    note = folder / ADAPTER / RUN
    if state.get("status") != FINISHED or not note.is_file():
        raise UserError(
            f"the run '{name}' is not finished: {state.get('status')} at step {state.get('step', 0)} of "
            f"{state.get('steps', '?')}",
            where=str(folder),
            next_step="train its recipe again, which goes on where it stopped",
        )
    values = json.loads((folder / RECIPE).read_text(encoding="utf-8"))
    for key in PLUGIN_LISTS:  # what only watched the run is not needed to measure it
        values["training"].pop(key, None)
    recipe = build(values, where=str(folder / RECIPE))
    return FinishedRun(name, folder, recipe, json.loads(note.read_text(encoding="utf-8")))
