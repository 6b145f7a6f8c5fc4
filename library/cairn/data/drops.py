"""Why a record does not become tokens. Every drop and every cut has a reason, and is counted.

A reason is a text. Those of reading and encoding are listed here; a filter brings its own, which begin with its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cairn.errors import DataError
from cairn.records import Source


class DropReason(StrEnum):
    """The text is what a manifest and a report show."""

    BLANK_LINE = "blank line"
    OTHER_SUBSET = "subset not chosen"
    HELD_OUT = "held out"
    BINARY_FILE = "binary file"
    NOT_JSON = "not valid JSON in UTF-8"
    DAMAGED_ROW = "row is damaged"
    NOT_OF_FORMAT = "row does not fit the format"
    NO_PREFERENCE = "no answer is better than another"
    NOT_JUDGED = "answer not judged"
    EMPTY = "empty text"
    TOO_LONG = "longer than a row"
    NOTHING_TO_TRAIN = "no answer to train on"
    TEMPLATE_REFUSED = "refused by the chat template"
    TOOLS_NOT_SHOWN = "tools that the chat template does not show"
    ANSWER_NOT_FOUND = "answer not found in the rendered conversation"

    @property
    def unusable(self) -> bool:
        """Whether the record itself is at fault, rather than left out by choice."""
        return self not in CHOSEN


CHOSEN = frozenset(
    {
        DropReason.BLANK_LINE,
        DropReason.OTHER_SUBSET,
        DropReason.HELD_OUT,
        DropReason.BINARY_FILE,
        DropReason.NO_PREFERENCE,
        DropReason.NOT_JUDGED,
        DropReason.EMPTY,
        DropReason.TOO_LONG,
    }
)
UNUSABLE = frozenset(reason for reason in DropReason if reason.unusable)


def is_unusable(reason: str) -> bool:
    """Whether the record itself is at fault; what a filter drops never is, it is left out by choice."""
    return reason in UNUSABLE


class CutReason(StrEnum):
    """What truncation took from a record that was kept."""

    OLDEST_TURNS = "oldest turns cut"
    NEWEST_TURNS = "newest turns cut"
    PROMPT_START = "start of a prompt cut"
    PROMPT_END = "end of a prompt cut"


class LeftOut(DataError):
    """A row that is of its format and still becomes no record. `reason` says why."""

    reason: DropReason


class NoPreference(LeftOut):
    """No two answers of the row differ in how good they are, or in what they say."""

    reason = DropReason.NO_PREFERENCE


class NotJudged(LeftOut):
    """Nobody has said yet whether the answer is good."""

    reason = DropReason.NOT_JUDGED


class EmptyAnswer(LeftOut):
    """An answer says nothing, so it can be neither learnt nor unlearnt."""

    reason = DropReason.EMPTY


SHOWN_EXAMPLES = 3
"""Of each reason so many are told in full; the rest is counted."""


def note(counts: Counter[str], examples: dict[str, list[str]], reason: str, detail: str) -> None:
    """Count a drop, and keep the first of those that are unusable."""
    counts[str(reason)] += 1
    shown = examples.setdefault(str(reason), []) if is_unusable(reason) else []
    if len(shown) < SHOWN_EXAMPLES:
        shown.append(detail)


def told(examples: Mapping[str, Sequence[str]]) -> str:
    """The examples for a message, one a line."""
    return "".join(f"\n    {reason}: {detail}" for reason, details in examples.items() for detail in details)


@dataclass(frozen=True)
class Dropped:
    """A refusal of an encoder or a filter; `detail` says what exactly was found."""

    reason: str
    detail: str = ""


@dataclass(frozen=True)
class Rejected:
    """A line that is no record; `detail` says what was found."""

    source: Source
    reason: DropReason
    detail: str = ""
