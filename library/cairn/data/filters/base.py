"""What a filter is: its thresholds, and a verdict on one document at a time.

A verdict depends on the document alone: no state between documents, no chance but from the text itself. A filter that
drops says its reason in few words, the same for every document, so that reasons can be counted; the figure found goes
into the detail. A filter that changes the text says what it took, and how much of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from cairn.data.drops import Dropped
from cairn.data.view import View
from cairn.plugins import Plugin

Fault = tuple[str, object]
"""A reason, and the figure that was found."""


@dataclass(frozen=True)
class Changed:
    """The text that is kept in place of the document's, and how much was taken or masked, by reason."""

    text: str
    counts: Mapping[str, int]


Verdict = Dropped | Changed | None
"""None: the document stays as it is."""


class Filter(Plugin):
    """Implements `faults`, where it only keeps or drops, or `judge`, where it also changes."""

    for_web: ClassVar[bool] = False
    """Made for pages of the web: unless asked by name, never on a component of the Pile that is none."""

    def judge(self, view: View) -> Verdict:
        """Dropped for the first of the faults, if there is one."""
        for reason, found in self.faults(view):
            return self.drop(reason, found)
        return None

    def faults(self, view: View) -> Iterator[Fault]:
        """What is wrong with the document, the cheap rules first; only the first is looked at."""
        raise NotImplementedError

    def drop(self, reason: str, found: object = "") -> Dropped:
        """The verdict; the reason bears the filter's name."""
        return Dropped(f"{self.name}: {reason}", f"{found:.4g}" if isinstance(found, float) else str(found))

    def changed(self, view: View, text: str, counts: Mapping[str, int]) -> Verdict:
        """The verdict where `text` takes the place of what the document had: None if it is the same."""
        if text == view.text:
            return None
        if not text.strip():
            return self.drop("nothing left")
        return Changed(text, {f"{self.name}: {reason}": count for reason, count in counts.items() if count})

    def fingerprint(self) -> str:
        """All that its verdicts depend on beside the document; a filter with files of its own adds what is in them."""
        return json.dumps([self.name, self.config.model_dump(mode="json")], sort_keys=True)


LineRule = Callable[[str], tuple[str | None, str]]
"""A line, stripped, to the line that stays (None: none does) and the reason; a reason of "" says that nothing was wrong."""


def edited_lines(text: str, rule: LineRule) -> tuple[str, dict[str, int]]:
    """The text with `rule` applied to each line that is not blank, and how many lines it changed, by reason.

    Blank lines stay, but never three line ends in a row where lines were taken out.
    """
    kept: list[str] = []
    counts: dict[str, int] = {}
    for line in text.split("\n"):
        stripped = line.strip()
        if not stripped:
            if not counts or (kept and kept[-1]):
                kept.append("")
            continue
        left, reason = rule(stripped)
        if reason:
            counts[reason] = counts.get(reason, 0) + 1
        if left is not None:
            kept.append(left if reason else line)
    return ("\n".join(kept).strip("\n"), counts) if counts else (text, counts)
