"""Answers and their ratings stand in two lists, joined by the model's name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def expand(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The row with each answer's rating beside it; null where nobody rated the answer."""
    ratings = {note.get("model"): note.get("rating") for note in row["annotations"]}
    yield {**row, "responses": [{**answer, "rating": ratings.get(answer.get("model"))} for answer in row["responses"]]}
