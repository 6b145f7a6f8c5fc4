"""Row → records by a format's YAML. A file in `formats/` is a format; its stem is the name in a recipe.

A recipe may also name a YAML of its own (`./mine.yaml`), or change a known one in part: `{like: alpaca, rename:
{instruction: question}}`. A row that does not fit raises a DataError that says field, found and expected; nothing is
guessed or invented. Where YAML cannot say it, a `.py` of the same stem turns a row into rows that it can (`expand`).
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cairn.config.explain import explain
from cairn.config.yaml import parse_yaml
from cairn.data.layout import Layout, kind_name, misfit
from cairn.data.messages import find, messages_of, parse_tools
from cairn.data.paths import MISSING
from cairn.data.preferences import comparisons, judgement
from cairn.data.rename import changed
from cairn.errors import DataError, RecipeError, UserError, did_you_mean
from cairn.records import KINDS, NO_SUBSET, Conversation, Document, Record, Source

FOLDER = Path(__file__).with_name("formats")
LIKE = "like"
Expand = Callable[[dict[str, Any]], Iterable[dict[str, Any]]]


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

    def fits(self, row: Any) -> bool:
        """Whether a row has what the format requires and nothing that it excludes."""
        return isinstance(row, dict) and misfit(self.layout, row) is None

    def records(self, row: Any, source: Source) -> list[Record]:
        """The records of a row, at least one; a DataError says which field was found to be what."""
        if not isinstance(row, dict):
            raise DataError(f"a row is an object, found a {kind_name(row)}", where=str(source))
        problem = misfit(self.layout, row["rows"][0] if self.layout.group_by else row)
        if problem is not None:
            raise DataError(problem, where=str(source), next_step=f"{self.name} is {self.layout.about}")
        rows = [row] if self.expand is None else self.expand(row)
        plain = [each for one in rows for each in self._spread(one, source)]
        records = [record for each in plain for record in self._records(each, source)]
        if not records:
            raise DataError("nothing in the row can be used", where=str(source), next_step=self.layout.about)
        return records

    def _spread(self, row: dict[str, Any], source: Source) -> list[dict[str, Any]]:
        """The row itself, or one for each element of the list at `rows`."""
        path = self.layout.rows
        if path is None:
            return [row]
        elements = find(row, path, source)
        if not isinstance(elements, list) or not all(isinstance(element, dict) for element in elements):
            found = kind_name(elements)
            raise DataError(f"field '{path}': expected a list of objects, found a {found}", where=str(source))
        return [row | element for element in elements]

    def _records(self, row: dict[str, Any], source: Source) -> list[Record]:
        layout = self.layout
        labels = {
            "subset": self._label(row, layout.subset, source) or NO_SUBSET,
            "id": self._label(row, layout.id, source),
        }
        if layout.record == "document":
            return [Document(source, find(row, str(layout.text), source), **labels)]
        tools = parse_tools(find(row, layout.tools, source), source) if layout.tools else ()
        if layout.record == "comparison":
            return [*comparisons(layout, row, source, labels, tools)]
        messages = tuple(messages_of(layout.messages, row, source))
        if layout.good is not None:
            return [judgement(layout.good, messages, row, source, labels, tools)]
        answer = self._label(row, layout.answer, source) or None
        return [Conversation(source, messages, tools, answer, **labels)]

    def _label(self, row: Mapping[str, Any], path: str | None, source: Source) -> str:
        found = find(row, path, source) if path else MISSING
        if found is MISSING or found is None:
            return ""
        if isinstance(found, (str, int, float)):
            return str(found)
        raise DataError(f"field '{path}': expected a string, found {kind_name(found)}", where=str(source))


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
