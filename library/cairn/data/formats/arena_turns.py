"""Questions and each side's answers stand in three lists of JSON: woven into two conversations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def expand(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The row with `conversation_a` and `conversation_b`. An answer that is null (a side that failed) becomes empty."""
    questions = _list(row["prompt"])
    sides = {side: _woven(questions, _list(row[f"response_{side}"])) for side in "ab"}
    yield {**row, **{f"conversation_{side}": messages for side, messages in sides.items()}}


def _list(found: Any) -> list[Any]:
    return list(json.loads(found)) if isinstance(found, str) else list(found)


def _woven(questions: list[Any], answers: list[Any]) -> list[dict[str, Any]]:
    turns = zip(questions, answers, strict=False)
    return [
        message
        for question, answer in turns
        for message in ({"role": "user", "content": question}, {"role": "assistant", "content": answer or ""})
    ]
