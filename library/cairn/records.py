"""The records a dataset yields: four kinds for nine stages. Each says where it came from.

A format (`data/formats/`) turns a row into one of these; a stage names the kind it eats.
"""

from __future__ import annotations

from typing import Any

import msgspec

NO_SUBSET = "unknown"


class Source(msgspec.Struct, frozen=True):
    """The file and the line (from 1) that a record came from."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One turn. `weight` is how much its tokens count in the loss; only an assistant's count at all.

    `fields` holds what a chat template may also read (`tool_calls`, `name`, `reasoning_content`).
    """

    role: str
    content: str
    weight: float = 1.0
    fields: dict[str, Any] = {}

    def for_template(self) -> dict[str, Any]:
        """The message as a chat template expects it."""
        return {"role": self.role, "content": self.content, **self.fields}


class Document(msgspec.Struct, frozen=True, tag="document"):
    """Plain text of one subset of a corpus (`pile_set_name` in the Pile)."""

    source: Source
    text: str
    subset: str = NO_SUBSET
    id: str = ""


class Conversation(msgspec.Struct, frozen=True, tag="conversation"):
    """Turns, with the tools on offer and, where there is one, the answer a reward may check against."""

    source: Source
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    answer: str | None = None
    subset: str = NO_SUBSET
    id: str = ""


class Comparison(msgspec.Struct, frozen=True, tag="comparison"):
    """A preferred and a rejected answer to one prompt; pairs of one ranking share a `group`."""

    source: Source
    prompt: tuple[Message, ...]
    chosen: tuple[Message, ...]
    rejected: tuple[Message, ...]
    margin: float = 0.0
    weight: float = 1.0
    group: str = ""
    subset: str = NO_SUBSET
    id: str = ""
    tools: tuple[dict[str, Any], ...] = ()


class Judgement(msgspec.Struct, frozen=True, tag="judgement"):
    """An answer called good or bad on its own."""

    source: Source
    prompt: tuple[Message, ...]
    answer: tuple[Message, ...]
    good: bool
    subset: str = NO_SUBSET
    id: str = ""
    tools: tuple[dict[str, Any], ...] = ()


Record = Document | Conversation | Comparison | Judgement
KINDS: dict[str, type[Record]] = {
    "document": Document,
    "conversation": Conversation,
    "comparison": Comparison,
    "judgement": Judgement,
}
