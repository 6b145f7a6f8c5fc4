"""Runs of any stages side by side: every one and the base model measured by one yardstick, ranked by one figure.

Models are loaded one after the other, the base last, so memory holds one of them. `comparison.json` has all that the
table and the page show.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from cairn.comparison.figures import FIGURES, Figures, base_figures, interval, scorer_figures, speaker_figures
from cairn.comparison.measure import TEMPERATURE, Measured, answer_nats, measure
from cairn.comparison.runs import FinishedRun
from cairn.comparison.yardstick import Settings, Yardstick, build_yardstick, shared_tokenizer
from cairn.errors import UserError, did_you_mean
from cairn.models.load import DTYPES
from cairn.store.durable import replace_file

COMPARISON_FILE = "comparison.json"
SHOWN_ANSWERS = 8


@dataclass(frozen=True)
class Entry:
    """A run, or the base: what it is, its figures, and bits per byte by subset. `interval`: 95 % of the accuracy."""

    name: str
    stage: str
    method: str
    folder: str
    figures: Figures
    interval: tuple[float, float]
    bits_per_byte: dict[str, float]
    answers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """`runs` by rank, those without the figure `by` last."""

    by: str
    runs: tuple[Entry, ...]
    base: Entry
    yardstick: dict[str, Any]
    prompts: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        """The content of `comparison.json`."""
        return {**asdict(self), "meaning": {name: asdict(figure) for name, figure in FIGURES.items()}}

    def write(self, folder: Path) -> Path:
        """Write `comparison.json` into `folder`, which exists; returns its path."""
        path = folder / COMPARISON_FILE
        replace_file(path, json.dumps(self.plain(), indent=1, ensure_ascii=False, allow_nan=False) + "\n")
        return path


def compare(
    runs: Sequence[FinishedRun],
    settings: Settings,
    *,
    by: str = "accuracy",
    on_progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Measure and rank. Raises UserError before the first weight is read where the runs or the data do not fit.

    `on_progress(done, total)` counts models.
    """
    _check(by, FIGURES, "figure", "--by")
    _check(settings.precision, DTYPES, "precision", "--precision")
    tokenizer = shared_tokenizer(runs, settings.precision)
    yardstick = build_yardstick(runs, settings, tokenizer)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    report = on_progress or (lambda done, total: None)
    found: list[Measured] = []
    for run in runs:
        report(len(found), len(runs) + 1)
        head: Any = "score" if run.scores else "language"
        found.append(measure(run.subject(settings.precision).load(device, head=head), tokenizer, yardstick))
    report(len(runs), len(runs) + 1)
    model = runs[0].base(settings.precision).load(device)
    nats = [answer_nats(model, yardstick, one.answers) if one.answers else [] for one in found]
    base = measure(model, tokenizer, yardstick)
    report(len(runs) + 1, len(runs) + 1)
    entries = []
    for run, one, under_base in zip(runs, found, nats, strict=True):
        figures = scorer_figures(one) if run.scores else speaker_figures(one, base, under_base)
        facts = (run.name, run.stage, run.recipe.adapter.name, str(run.folder))
        entries.append(_entry(facts, figures | run.costs, one))
    path = runs[0].recipe.model.path
    return Comparison(
        by=by,
        runs=tuple(ranked(entries, by)),
        base=_entry((Path(path).name, "", "", path), base_figures(base), base),
        yardstick=_said(yardstick, settings),
        prompts=tuple(text for text, _ in yardstick.prompts[:SHOWN_ANSWERS]),
    )


def ranked(entries: Sequence[Entry], by: str) -> list[Entry]:
    """The best first; those without the figure last, in their order."""
    sign = -1.0 if FIGURES[by].better == "max" else 1.0

    def place(entry: Entry) -> tuple[bool, float]:
        value = entry.figures.get(by)
        return (True, 0.0) if value is None else (False, sign * value)

    return sorted(entries, key=place)


def _check(name: str, known: Iterable[str], what: str, where: str) -> None:
    names = list(known)
    if name not in names:
        raise UserError(f"there is no {what} '{name}'", where=where, next_step=did_you_mean(name, names))


def _entry(facts: tuple[str, str, str, str], figures: Figures, found: Measured) -> Entry:
    accuracy, bits = figures["accuracy"], found.bits_per_byte
    assert accuracy is not None, "every model has pairs"
    return Entry(
        *facts,
        figures={name: figures.get(name) for name in FIGURES},
        interval=interval(accuracy, float(found.pairs.weights.sum())),
        bits_per_byte=dict(bits.per_subset) if bits else {},
        answers=tuple(answer.text for answer in found.answers[:SHOWN_ANSWERS]),
    )


def _said(yardstick: Yardstick, settings: Settings) -> dict[str, Any]:
    """What everything was measured by."""
    return {
        "pairs": yardstick.pairs,
        "pair_files": list(yardstick.pair_files),
        "left_out": yardstick.left_out,
        "prompts": len(yardstick.prompts),
        "max_tokens": yardstick.max_tokens,
        "temperature": TEMPERATURE,
        "documents": len(yardstick.documents),
        "document_files": list(settings.files),
        "window": yardstick.window,
        "precision": settings.precision,
    }
