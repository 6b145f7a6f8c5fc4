"""Row → record by a format's YAML. A file in `formats/` is a format; its stem is the name in a recipe.

A row that does not fit raises a DataError that says field, found and expected; nothing is guessed or invented.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cairn.config.yaml import parse_yaml
from cairn.data.layout import KIND_TYPES, MISSING, Each, Layout, Turn, kind_name, value_at
from cairn.data.messages import build_message, parse_tools, plain_text
from cairn.errors import DataError, UserError, did_you_mean
from cairn.records import KINDS, NO_SUBSET, Conversation, Document, Message, Record, Source

FOLDER = Path(__file__).with_name("formats")


@dataclass(frozen=True)
class Format:
    """A named layout."""

    name: str
    layout: Layout

    @classmethod
    def load(cls, name: str) -> Format:
        """The format of that name; a UserError with the nearest name otherwise."""
        return _load(name)

    @property
    def kind(self) -> type[Record]:
        """The record that its rows become."""
        return KINDS[self.layout.record]

    def fits(self, row: Mapping[str, Any]) -> bool:
        """Whether a row has what the format requires and nothing that it excludes."""
        return self._misfit(row) is None

    def record(self, row: Any, source: Source) -> Record:
        """The row as a record; a DataError says which field was found to be what."""
        if not isinstance(row, dict):
            raise DataError(f"a row is an object, found a {kind_name(row)}", where=str(source))
        misfit = self._misfit(row)
        if misfit is not None:
            raise DataError(misfit, where=str(source), next_step=f"{self.name} is {self.layout.about}")
        subset = self._label(row, self.layout.subset, source) or NO_SUBSET
        row_id = self._label(row, self.layout.id, source)
        if self.layout.record == "document":
            assert self.layout.text is not None, self.name
            return Document(source, value_at(row, self.layout.text), subset, row_id)
        messages = tuple(self._messages(row, source))
        tools = parse_tools(value_at(row, self.layout.tools), source) if self.layout.tools else ()
        answer = self._label(row, self.layout.answer, source) or None
        return Conversation(source, messages, tools, answer, subset, row_id)

    def _misfit(self, row: Mapping[str, Any]) -> str | None:
        for path, kind in self.layout.requires.items():
            found = value_at(row, path)
            if not isinstance(found, KIND_TYPES[kind]):
                return f"field '{path}': expected a {kind}, found {kind_name(found)}"
        for key in self.layout.excludes:
            if row.get(key) is not None:
                return f"field '{key}' makes it another format than {self.name}"
        return None

    def _label(self, row: Mapping[str, Any], path: str | None, source: Source) -> str:
        found = value_at(row, path) if path else MISSING
        if found is MISSING or found is None:
            return ""
        if isinstance(found, (str, int)):
            return str(found)
        raise DataError(f"field '{path}': expected a string, found a {kind_name(found)}", where=str(source))

    def _messages(self, row: Mapping[str, Any], source: Source) -> Iterator[Message]:
        for part in self.layout.messages:
            if isinstance(part, Turn):
                yield from _turn(part, row, "", source)
            else:
                yield from _each(part, row, source)


def _each(part: Each, row: Mapping[str, Any], source: Source) -> Iterator[Message]:
    elements = value_at(row, part.each)
    if part.optional and (elements is MISSING or elements is None):
        return
    if not isinstance(elements, list):
        raise DataError(f"field '{part.each}': expected a list, found {kind_name(elements)}", where=str(source))
    if not elements and not part.optional:
        raise DataError(f"field '{part.each}': the list is empty", where=str(source))
    for index, element in enumerate(elements):
        for turn in part.turns:
            yield from _turn(turn, element, f"{part.each}.{index}.", source)


def _turn(turn: Turn, element: Any, prefix: str, source: Source) -> Iterator[Message]:
    texts = []
    for path in turn.content:
        found = value_at(element, path)
        required = path == turn.content[0] and not turn.optional
        texts.append(
            plain_text(found, field=prefix + path, required=required and not _has_calls(turn, element), source=source)
        )
    text = "\n".join(text for text in texts if text)
    if text or not turn.optional:
        yield build_message(turn, element, text, prefix=prefix, source=source)


def _has_calls(turn: Turn, element: Any) -> bool:
    return "tool_calls" in turn.keep and bool(isinstance(element, dict) and element.get("tool_calls"))


@cache
def _load(name: str) -> Format:
    path = FOLDER / f"{name}.yaml"
    if name not in names():
        raise UserError(f"there is no format '{name}'", where="data.format", next_step=did_you_mean(name, names()))
    return Format(name, Layout.parse(parse_yaml(path.read_text(encoding="utf-8"), where=str(path))))


def names() -> list[str]:
    """All formats on offer, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def detect(row: Any) -> Format | None:
    """The fitting format with the most required fields, or None."""
    if not isinstance(row, dict):
        return None
    fitting = [format for format in map(Format.load, names()) if format.fits(row)]
    return max(fitting, key=lambda format: len(format.layout.requires), default=None)
