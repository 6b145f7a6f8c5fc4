"""Row → records by a format's YAML. A file in `formats/` is a format; its stem is the name in a recipe.

A recipe may also name a YAML of its own (`./mine.yaml`), or change a known one in part: `{like: alpaca, rename:
{instruction: question}}`. A row that does not fit raises a DataError that says field, found and expected; nothing is
guessed or invented. Where YAML cannot say it, a `.py` of the same stem turns a row into rows that it can (`expand`).
A layout becomes functions when its first row is read, so a row costs a lookup for each field.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cairn.config.explain import explain
from cairn.config.yaml import parse_yaml
from cairn.data.fit import fitting, misfit, needed_keys
from cairn.data.layout import Layout, kind_name
from cairn.data.messages import parse_tools, reader
from cairn.data.paths import MISSING, FieldError, getter, value_at
from cairn.data.preferences import comparing, judging
from cairn.data.rename import changed
from cairn.errors import DataError, RecipeError, UserError, did_you_mean
from cairn.records import KINDS, NO_SUBSET, Conversation, Document, Record, Source

FOLDER = Path(__file__).with_name("formats")
LIKE = "like"
Expand = Callable[[dict[str, Any]], Iterable[dict[str, Any]]]
ReadRow = Callable[[Any, Source], list[Record]]


@dataclass(frozen=True)
class Format:
    """A named layout. `expand` turns a raw row into rows that the layout describes."""

    name: str
    layout: Layout
    expand: Expand | None = None

    @classmethod
    def load(cls, name: str | Mapping[str, Any]) -> Format:
        """The format of that name, of that YAML file, or like another with changes. UserError with the nearest name."""
        if isinstance(name, str):
            return _of_file(name) if name.endswith((".yaml", ".yml")) else _named(name)
        return _like(json.dumps(dict(name), sort_keys=True))

    @property
    def kind(self) -> type[Record]:
        """The record that its rows become."""
        return KINDS[self.layout.record]

    @cached_property
    def _fits(self) -> Callable[[Mapping[str, Any]], bool]:
        return fitting(self.layout)

    @cached_property
    def _read(self) -> ReadRow:
        return reading(self.layout)

    @cached_property
    def needed_keys(self) -> frozenset[str]:
        """Keys without which no row fits."""
        return needed_keys(self.layout)

    def fits(self, row: Any) -> bool:
        """Whether a row has what the format requires and nothing that it excludes."""
        return isinstance(row, dict) and self._fits(row)

    def records(self, row: Any, source: Source) -> list[Record]:
        """The records of a row, at least one; a DataError says which field was found to be what."""
        if not isinstance(row, dict):
            raise DataError(f"a row is an object, found a {kind_name(row)}", where=str(source))
        head = row["rows"][0] if self.layout.group_by else row
        if not self._fits(head):
            problem = str(misfit(self.layout, head))
            raise DataError(problem, where=str(source), next_step=f"{self.name} is {self.layout.about}")
        try:
            if self.expand is None and self.layout.rows is None:
                return self._read(row, source)
            records = [record for each in self._plain(row, source) for record in self._read(each, source)]
        except FieldError as error:
            raise DataError(str(error), where=str(source)) from None
        if not records:
            raise DataError("nothing in the row can be used", where=str(source), next_step=self.layout.about)
        return records

    def _plain(self, row: dict[str, Any], source: Source) -> list[dict[str, Any]]:
        """Rows as the layout describes them: what `expand` makes of the row, one for each element of a list at `rows`."""
        rows = [row] if self.expand is None else self._expanded(self.expand, row, source)
        path = self.layout.rows
        return rows if path is None else [each | element for each in rows for element in _elements(each, path)]

    def _expanded(self, expand: Expand, row: dict[str, Any], source: Source) -> list[dict[str, Any]]:
        try:
            return list(expand(row))
        except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise DataError(
                f"the row is not laid out as {self.name} is ({type(error).__name__}: {error})",
                where=str(source),
                next_step=self.layout.about,
            ) from None


def _elements(row: dict[str, Any], path: str) -> list[dict[str, Any]]:
    elements = value_at(row, path)
    if not isinstance(elements, list) or not all(isinstance(element, dict) for element in elements):
        raise FieldError(path, f"expected a list of objects, found a {kind_name(elements)}")
    return elements


def reading(layout: Layout) -> ReadRow:
    """What makes a record, or several, of a row that fits. Raises FieldError and DataError."""
    subset_of, id_of = _label(layout.subset), _label(layout.id)
    if layout.record == "document":
        text_of = getter(str(layout.text))

        def document(row: Any, source: Source) -> list[Record]:
            subset, id = subset_of(row) or NO_SUBSET, id_of(row)
            return [Document(source, text_of(row), subset, id)]

        return document
    tools_at = getter(layout.tools) if layout.tools else lambda _: None
    if layout.record == "conversation":
        messages_of, answer_of = reader(layout.messages), _label(layout.answer)

        def conversation(row: Any, source: Source) -> list[Record]:
            subset, id = subset_of(row) or NO_SUBSET, id_of(row)
            tools, messages = parse_tools(tools_at(row)), messages_of(row)
            return [Conversation(source, messages, tools, answer_of(row) or None, subset, id)]

        return conversation
    judged = judging(layout.good, layout.messages) if layout.good else comparing(layout)

    def preference(row: Any, source: Source) -> list[Record]:
        subset, id = subset_of(row) or NO_SUBSET, id_of(row)
        return judged(row, source, parse_tools(tools_at(row)), subset, id)

    return preference


def _label(path: str | None) -> Callable[[Any], str]:
    """A text or a number as text; "" where nothing is there."""
    if path is None:
        return lambda _: ""
    find = getter(path)

    def read(row: Any) -> str:
        found = find(row)
        if found is MISSING or found is None:
            return ""
        if isinstance(found, (str, int, float)):
            return str(found)
        raise FieldError(path, f"expected a string, found {kind_name(found)}")

    return read


@cache
def _named(name: str) -> Format:
    if name not in names():
        raise UserError(f"there is no format '{name}'", where="data.format", next_step=did_you_mean(name, names()))
    path = FOLDER / f"{name}.yaml"
    return Format(name, _layout(_plain(path), where=str(path)), _expand(name))


def _of_file(name: str) -> Format:
    path = Path(name).expanduser()
    return Format(path.stem, _layout(_plain(path), where=str(path)))


@cache
def _like(text: str) -> Format:
    changes = json.loads(text)
    base = changes.pop(LIKE, None)
    if not isinstance(base, str):
        raise UserError(
            "a changed format says which one it is like",
            where="data.format",
            next_step="write data.format: {like: alpaca, rename: {instruction: question}}",
        )
    known = Format.load(base)
    plain = _plain(Path(base) if base.endswith((".yaml", ".yml")) else FOLDER / f"{base}.yaml")
    return Format(known.name, _layout(changed(plain, changes), where=f"data.format, like {base}"), known.expand)


def _plain(path: Path) -> dict[str, Any]:
    try:
        plain = parse_yaml(path.read_text(encoding="utf-8"), where=str(path))
    except OSError as error:
        raise UserError(f"the format cannot be read ({error})", where=str(path), next_step="check the path") from None
    if not isinstance(plain, dict):
        raise UserError(
            "a format is a mapping", where=str(path), next_step=f"begin with {', '.join(Layout.model_fields)}"
        )
    return plain


def _layout(plain: dict[str, Any], *, where: str) -> Layout:
    try:
        return Layout.parse(plain)
    except ValidationError as error:
        raise RecipeError(list(explain(error, Layout, prefix="")), where=where) from None


def _expand(name: str) -> Expand | None:
    if not (FOLDER / f"{name}.py").is_file():
        return None
    expand: Expand = importlib.import_module(f"cairn.data.formats.{name}").expand
    return expand


def names() -> list[str]:
    """All formats on offer, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))
