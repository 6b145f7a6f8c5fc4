"""Which program a configuration was written for, by the keys that only one of them has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cairn.config.dialects import axolotl, llamafactory
from cairn.config.dialects.translation import Dialect, Translation, translate
from cairn.config.load import read
from cairn.config.recipe import Recipe
from cairn.errors import UserError

DIALECTS: tuple[tuple[Dialect, str], ...] = (
    (llamafactory.DIALECT, "model_name_or_path"),
    (axolotl.DIALECT, "base_model"),
)
"""Each with the key that it cannot do without."""


def import_file(path: Path) -> Translation:
    """The recipe of another program's YAML or JSON, and the report. UserError where it is neither program's."""
    given = read(path)
    return translate(detect(given, path), given, path)


def detect(given: Mapping[str, Any], path: Path) -> Dialect:
    """The program with more keys of its own in `given`; its needed key counts for all that are missing."""
    scores = {dialect.title: _own_keys(given, dialect, needed) for dialect, needed in DIALECTS}
    best = max(scores.values())
    winners = [dialect for dialect, _ in DIALECTS if scores[dialect.title] == best]
    if best < 2 or len(winners) > 1:
        raise UserError(_found(given, scores), where=str(path), next_step=_next_step(given))
    return winners[0]


def _own_keys(given: Mapping[str, Any], dialect: Dialect, needed: str) -> int:
    others = {key for other, _ in DIALECTS if other is not dialect for key in _top(other)}
    return sum(key in _top(dialect) - others for key in given) + 2 * (needed in given)


def _top(dialect: Dialect) -> set[str]:
    return {key.partition(".")[0] for key in dialect.rules}


def _found(given: Mapping[str, Any], scores: Mapping[str, int]) -> str:
    counts = ", ".join(f"{count} keys that only {title} has" for title, count in scores.items())
    keys = ", ".join(map(str, [*given][:12])) or "none"
    return f"neither a LlamaFactory nor an Axolotl configuration: {counts}; its keys: {keys}"


def _next_step(given: Mapping[str, Any]) -> str:
    if {"model", "stage"} <= set(given) <= set(Recipe.model_fields):
        return "this is a recipe already: cairn train it"
    needed = " or ".join(f"{key} ({dialect.title})" for dialect, key in DIALECTS)
    return f"give a training configuration with {needed}"
