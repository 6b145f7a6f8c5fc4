"""A text, a filter, and what it said."""

from __future__ import annotations

from typing import Any

from cairn.data.drops import Dropped
from cairn.data.filters.base import Changed, Verdict
from cairn.data.view import View
from cairn.plugins import FILTERS
from cairn.records import Document, Source


def document(text: str, subset: str = "Pile-CC") -> Document:
    return Document(Source("00.jsonl.zst", 1), text, subset)


def judge(name: str, text: str, **config: Any) -> Verdict:
    plugin = FILTERS.load(name)
    return plugin(plugin.Config.parse(config)).judge(View(document(text)))


def reason(name: str, text: str, **config: Any) -> str | None:
    """Why it was dropped, without the filter's name; None where it was kept."""
    verdict = judge(name, text, **config)
    if not isinstance(verdict, Dropped):
        return None
    assert verdict.reason.startswith(f"{name}: ")
    return verdict.reason.removeprefix(f"{name}: ")


def left(name: str, text: str, **config: Any) -> str:
    """The text that came out of a filter that kept it."""
    verdict = judge(name, text, **config)
    assert not isinstance(verdict, Dropped), verdict
    return text if verdict is None else verdict.text


def taken(name: str, text: str, **config: Any) -> dict[str, int]:
    """How much was taken, by reason without the filter's name."""
    verdict = judge(name, text, **config)
    if verdict is None:
        return {}
    assert isinstance(verdict, Changed), verdict
    return {key.removeprefix(f"{name}: "): count for key, count in verdict.counts.items()}
