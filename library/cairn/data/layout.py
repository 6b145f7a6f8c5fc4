"""The language that a format's YAML is written in: which row it is, and where its parts stand.

Places are paths (`cairn.data.paths`). `requires` is what detection goes by: of the formats that fit a row, the one that
requires the most is its format. Everything not said keeps its default; a YAML holds no code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from cairn.config.section import Section
from cairn.data.paths import MISSING, first_keys, getter

Role = Literal["system", "user", "assistant", "tool"]
Kind = Literal["string", "list", "number", "boolean", "object", "scalar", "strings", "objects"]
Scalar = str | int | float | bool
KIND_TYPES: dict[str, type[Any] | tuple[type[Any], ...]] = {
    "string": str,
    "list": list,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "scalar": (str, int, float),
}
ELEMENTS = {"strings": str, "objects": dict}
PLACEHOLDER = re.compile(r"\{([^{}]+)\}")


class Check(Section):
    """What a value must be, beside being there."""

    kind: Kind | None = Field(None, description="its type")
    values: tuple[Scalar, ...] = Field((), description="it is one of these")
    matches: str | None = Field(None, description="a regular expression that is found in it")
    nullable: bool = Field(False, description="null is right too, if the key is there")

    def misfit(self, found: Any) -> str | None:
        """What is wrong with `found`, or None."""
        if found is None and self.nullable:
            return None
        if self.kind is not None and not is_kind(found, self.kind):
            return f"expected {_article(self.kind)}, found {_found(found, self.kind)}"
        if self.values and found not in self.values:
            return f"expected one of {', '.join(map(repr, self.values))}, found {_shown(found)}"
        if self.matches is not None and not (isinstance(found, str) and re.search(self.matches, found)):
            return f"expected a text with {self.matches!r}, found {_shown(found)}"
        return None


class Turn(Section):
    """One message. Its role is fixed by `role`, or read at `role_at` and translated by `roles`."""

    role: Role | None = Field(None, description="the role of every such message")
    role_at: str | None = Field(None, description="path of the role's name in the element")
    roles: dict[str, Role] = Field({}, description="name found at role_at → role")
    content: tuple[str, ...] = Field((), description="paths of the text; filled ones are joined")
    joined_by: str = Field("\n", description="what stands between the texts of content")
    template: str | None = Field(None, description="text around the paths in its {braces}, in place of content")
    weight: str | None = Field(None, description="path of the message's weight in the loss")
    keep: tuple[str, ...] = Field((), description="further keys that a chat template may read")
    fields: dict[str, str] = Field({}, description="field that a chat template may read → its path in the element")
    calls: tuple[str, ...] = Field((), description="names at role_at whose text is a JSON function call")
    otherwise: str | None = Field(None, description="the text where none is found")
    optional: bool = Field(False, description="no message where the text is missing or empty")

    def paths(self) -> Iterator[str]:
        """Every path it reads, relative to its element."""
        yield from self.content
        yield from PLACEHOLDER.findall(self.template or "")
        yield from self.keep
        yield from self.fields.values()
        yield from (path for path in (self.role_at, self.weight) if path)


class Each(Section):
    """The turns of every element of a list."""

    each: str = Field(description="path of the list in the row")
    turns: tuple[Turn, ...] = Field(min_length=1, description="messages made from one element")
    cycle: bool = Field(False, description="the elements take the turns in order, again and again")
    optional: bool = Field(False, description="no message where the list is missing")


class Split(Section):
    """Messages that stand in one text behind marks."""

    split: str = Field(description="path of the text")
    marks: dict[str, Role] = Field(min_length=1, description="mark → role of what follows it")
    drop: tuple[str, ...] = Field((), description="texts that are not part of any message")
    before: Role | None = Field(None, description="role of a text before the first mark; none: there may be none")
    exact: bool = Field(False, description="white space at both ends of a message belongs to it")
    optional: bool = Field(False, description="no message where the text is missing")


Part = Each | Split | Turn


class Option(Section):
    """An answer that is compared with others, or with `each` every answer of a list, and how good it is."""

    each: str | None = Field(None, description="path of a list of answers; the other paths start in its elements")
    content: tuple[str, ...] = Field((), description="paths of the answer's text")
    messages: tuple[Part, ...] = Field((), description="the answer as messages, in place of content")
    score: str | None = Field(None, description="path of a number, more is better")
    rank: str | None = Field(None, description="path of a number, less is better")
    wins: dict[str, Scalar] = Field({}, description="path → the value with which this answer is the better one")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if bool(self.content) == bool(self.messages):
            raise ValueError("an answer has content or messages")
        if [self.score, self.rank, self.wins or None].count(None) != 2:
            raise ValueError("an answer has one of score, rank and wins")
        return self


class Verdict(Section):
    """Whether an answer is good: the boolean at `at`, or one of `values`, or a number of at least `least`."""

    at: str = Field(description="path of the judgement")
    values: dict[str, bool] = Field({}, description="value found → good or not")
    least: float | None = Field(None, description="the smallest number that is good")


class Layout(Section):
    """A whole format."""

    about: str = Field(description="what such a row looks like")
    also: tuple[str, ...] = Field((), description="datasets of this shape, by their names on the hub")
    record: Literal["document", "conversation", "comparison", "judgement"] = Field(description="what a row becomes")
    requires: dict[str, Kind | Check] = Field(min_length=1, description="path → type or test; else not this format")
    excludes: tuple[str, ...] = Field((), description="keys that make it another format")
    closed: bool = Field(False, description="so does any other key that the format does not know")
    knows: tuple[str, ...] = Field((), description="further keys of such rows that no part reads")
    group_by: str | None = Field(None, description="rows in a row with the same value here become one: {rows: […]}")
    rows: str | None = Field(
        None, description="path of a list of objects: each, laid over the row, is a row of its own"
    )
    text: str | None = Field(None, description="path of a document's text")
    messages: tuple[Part, ...] = Field((), description="a conversation's messages in order")
    prompt: tuple[Part, ...] = Field((), description="what is answered; none: what the answers begin with in common")
    chosen: tuple[Part, ...] = Field((), description="the better answer")
    rejected: tuple[Part, ...] = Field((), description="the worse answer")
    answers: tuple[Option, ...] = Field((), description="scored or ranked answers in place of chosen and rejected")
    ties: dict[str, tuple[Scalar, ...]] = Field({}, description="path → values with which no answer is the better one")
    margin: str | None = Field(None, description="path of how much better the chosen answer is")
    good: Verdict | None = Field(None, description="the judgement of the last answer in messages")
    tools: str | None = Field(None, description="path of the tools on offer: a list, or a JSON text of one")
    answer: str | None = Field(None, description="path of an answer that a reward may check against")
    subset: str | None = Field(None, description="path of the subset's name")
    id: str | None = Field(None, description="path of the row's id")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        needed = {
            "document": self.text is not None,
            "conversation": bool(self.messages),
            "comparison": bool(self.answers) != bool(self.chosen and self.rejected),
            "judgement": bool(self.messages) and self.good is not None,
        }
        if not needed[self.record]:
            raise ValueError(f"a {self.record} needs {NEEDS[self.record]}")
        turns = [*_turns(self)]
        if any((turn.role is None) == (turn.role_at is None) for turn in turns):
            raise ValueError("a turn has role or role_at")
        for path in (*self.requires, *_read(self), *(path for turn in turns for path in turn.paths())):
            getter(path)
        return self

    @cached_property
    def known_keys(self) -> frozenset[str]:
        """Keys of the row that the format reads, requires, or at least knows."""
        paths = [*self.requires, *self.knows, *_read(self)]
        return frozenset(key for path in paths for key in first_keys(path))


NEEDS = {
    "document": "text",
    "conversation": "messages",
    "comparison": "chosen and rejected, or answers",
    "judgement": "messages and good",
}


def _read(layout: Layout) -> Iterator[str]:
    """Every path of a layout that starts at the row."""
    single = (layout.text, layout.margin, layout.tools, layout.answer, layout.subset, layout.id, layout.group_by)
    yield from (path for path in (*single, layout.rows) if path)
    yield from _read_by((*layout.messages, *layout.prompt, *layout.chosen, *layout.rejected))
    yield from layout.ties
    for option in layout.answers:
        inside = [*option.content, *_read_by(option.messages), *(p for p in (option.score, option.rank) if p)]
        yield from ([option.each] if option.each else inside)
        yield from option.wins
    if layout.good is not None:
        yield layout.good.at


def _turns(layout: Layout) -> Iterator[Turn]:
    """Every turn of a layout, those inside lists too."""
    parts = (*layout.messages, *layout.prompt, *layout.chosen, *layout.rejected)
    for part in (*parts, *(part for option in layout.answers for part in option.messages)):
        yield from (part.turns if isinstance(part, Each) else [part] if isinstance(part, Turn) else [])


def _read_by(parts: Sequence[Part]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, Turn):
            yield from part.paths()
        else:
            yield part.each if isinstance(part, Each) else part.split


def is_kind(value: Any, kind: Kind) -> bool:
    """Whether a value is of a type in the words of JSON."""
    if kind in ELEMENTS:
        return isinstance(value, list) and bool(value) and all(isinstance(item, ELEMENTS[kind]) for item in value)
    if kind in ("number", "scalar") and isinstance(value, bool):
        return False
    return isinstance(value, KIND_TYPES[kind])


def kind_name(value: Any) -> str:
    """A value's type in the words of JSON, for messages."""
    if value is MISSING:
        return "nothing"
    if value is None:
        return "null"
    names = {bool: "boolean", str: "string", int: "number", float: "number", list: "list", dict: "object"}
    return names.get(type(value), type(value).__name__)


def _article(kind: Kind) -> str:
    names = {"strings": "a list of strings", "objects": "a list of objects", "object": "an object"}
    return names.get(kind, "a string or a number" if kind == "scalar" else f"a {kind}")


def _found(value: Any, kind: Kind) -> str:
    if kind in ELEMENTS and isinstance(value, list):
        return "a list of other things" if value else "an empty list"
    return kind_name(value)


def _shown(found: Any) -> str:
    text = kind_name(found) if found is MISSING or found is None else repr(found)
    return text if len(text) <= 60 else f"{text[:57]}..."
