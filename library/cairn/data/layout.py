"""The language that a format's YAML is written in: which row it is, and where its parts stand.

A path is dotted keys (`meta.pile_set_name`); a number is an index into a list. `requires` is also what detection goes
by: the format with the most required keys that a row has is its format.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from cairn.config.section import Section

Role = Literal["system", "user", "assistant", "tool"]
Kind = Literal["string", "list", "number", "boolean"]
KIND_TYPES: dict[str, type[Any] | tuple[type[Any], ...]] = {
    "string": str,
    "list": list,
    "number": (int, float),
    "boolean": bool,
}


class Turn(Section):
    """One message. Its role is fixed by `role`, or read at `role_at` and translated by `roles`."""

    role: Role | None = Field(None, description="the role of every such message")
    role_at: str | None = Field(None, description="path of the role's name in the element")
    roles: dict[str, Role] = Field({}, description="name found at role_at → role")
    content: tuple[str, ...] = Field(description="paths of the text; filled ones are joined by a line break")
    weight: str | None = Field(None, description="path of the message's weight in the loss")
    keep: tuple[str, ...] = Field((), description="further keys that a chat template may read")
    calls: tuple[str, ...] = Field((), description="names at role_at whose text is a JSON function call")
    optional: bool = Field(False, description="no message where the text is missing or empty")


class Each(Section):
    """The turns of every element of a list."""

    each: str = Field(description="path of the list in the row")
    turns: tuple[Turn, ...] = Field(min_length=1, description="messages made from one element")
    optional: bool = Field(False, description="no message where the list is missing")


class Layout(Section):
    """A whole format."""

    about: str = Field(description="what such a row looks like")
    record: Literal["document", "conversation"] = Field(description="the kind of record a row becomes")
    requires: dict[str, Kind] = Field(min_length=1, description="path → type; without these it is not this format")
    excludes: tuple[str, ...] = Field((), description="keys that make it another format")
    text: str | None = Field(None, description="path of a document's text")
    messages: tuple[Each | Turn, ...] = Field((), description="a conversation's messages in order")
    tools: str | None = Field(None, description="path of the tools on offer: a list, or a JSON text of one")
    answer: str | None = Field(None, description="path of an answer that a reward may check against")
    subset: str | None = Field(None, description="path of the subset's name")
    id: str | None = Field(None, description="path of the row's id")


MISSING = object()


def value_at(row: Any, path: str) -> Any:
    """The value at a dotted path, or MISSING."""
    for key in path.split("."):
        if isinstance(row, Mapping) and key in row:
            row = row[key]
        elif isinstance(row, list) and key.isdecimal() and int(key) < len(row):
            row = row[int(key)]
        else:
            return MISSING
    return row


def kind_name(value: Any) -> str:
    """A value's type in the words of JSON, for messages."""
    if value is MISSING:
        return "nothing"
    if value is None:
        return "null"
    names = {bool: "boolean", str: "string", int: "number", float: "number", list: "list", dict: "object"}
    return names[type(value)]
