"""Why a record does not become tokens. Every drop and every cut has one of these reasons, and is counted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cairn.records import Source


class DropReason(StrEnum):
    """The text is what a manifest and a report show."""

    BLANK_LINE = "blank line"
    OTHER_SUBSET = "subset not chosen"
    NOT_JSON = "not valid JSON in UTF-8"
    NOT_OF_FORMAT = "row does not fit the format"
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


CHOSEN = frozenset({DropReason.BLANK_LINE, DropReason.OTHER_SUBSET, DropReason.EMPTY, DropReason.TOO_LONG})


class CutReason(StrEnum):
    """What truncation took from a record that was kept."""

    ANSWER_END = "end of the conversation cut"
    OLDEST_TURNS = "oldest turns cut"


@dataclass(frozen=True)
class Dropped:
    """An encoder's refusal; `detail` says what exactly was found."""

    reason: DropReason
    detail: str = ""


@dataclass(frozen=True)
class Rejected:
    """A line that is no record; `detail` says what was found."""

    source: Source
    reason: DropReason
    detail: str = ""
