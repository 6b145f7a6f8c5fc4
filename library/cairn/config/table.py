"""The README's table of recipe keys, written from the code: names, types, defaults, descriptions.

`python -m cairn.config.table` rewrites the part of README.md between the markers `<!-- recipe keys -->` and
`<!-- end of recipe keys -->`; a test fails when the README is behind. Plugins' Configs are included, so a new
optimizer documents its knobs by existing; those of the adapter methods stand in docs/methods.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from cairn.config.data import Dataset
from cairn.config.explain import type_name
from cairn.config.goal import EarlyStopping, Goal
from cairn.config.home import default_storage
from cairn.config.recipe import PLUGIN_LISTS, PLUGIN_SECTIONS, SECTIONS, Axis, Recipe
from cairn.config.section import Section
from cairn.plugins import FAMILIES

MARKER = "recipe keys"
PAGES = {"adapter": "docs/methods.md"}
"""Sections whose plugins have a page of their own."""
HEADER = ("| key | type | default | meaning |", "|---|---|---|---|")


def recipe_table() -> str:
    """Markdown: one table a section, one a plugin."""
    parts = [part for name in Recipe.model_fields for part in _section(name)]
    return "\n\n".join(parts)


def rewrite(readme: str, marker: str, content: str) -> str:
    """`readme` with what stands between `<!-- marker -->` and `<!-- end of marker -->` replaced.

    Raises ValueError when a marker is missing.
    """
    begin, end = f"<!-- {marker} -->", f"<!-- end of {marker} -->"
    before, found, rest = readme.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the README lacks {begin} … {end}")
    return f"{before}{begin}\n{content}\n{end}{after}"


def _section(name: str) -> Iterator[str]:
    if name in SECTIONS:
        yield _heading(f"`{name}`", SECTIONS[name].__doc__) + "\n\n" + key_rows(name, SECTIONS[name])
        if name == "search":
            yield _heading("`search.space`", Axis.__doc__) + "\n\n" + key_rows("search.space.KEY", Axis)
        if name == "data":
            yield (
                _heading("`data.train`, `data.validation`", Dataset.__doc__)
                + "\n\n"
                + key_rows("data.train.N", Dataset)
            )
        if name == "training":
            for key, part in (("best", Goal), ("early_stopping", EarlyStopping)):
                yield _heading(f"`training.{key}`", part.__doc__) + "\n\n" + key_rows(f"training.{key}", part)
            yield from _plugins("training.trackers.N", PLUGIN_LISTS["trackers"])
        return
    family, default = PLUGIN_SECTIONS[name]
    names = ", ".join(f"`{choice}`" for choice in FAMILIES[family].names())
    note = f"default `{default}`" if default else "must be named"
    elsewhere = f" Their keys: [{PAGES[name]}]({PAGES[name]})." if name in PAGES else ""
    yield f"**`{name}`** A file of `library/cairn/{family.replace('.', '/')}/`: `name` is one of {names} ({note}).{elsewhere}"
    if name not in PAGES:
        yield from _plugins(name, family)


def _plugins(section: str, family: str) -> Iterator[str]:
    """The keys of each plugin of the family that has any."""
    for choice in FAMILIES[family].names():
        plugin = FAMILIES[family].load(choice)
        if plugin.Config.model_fields:
            title = f"`{section}: {{name: {choice}}}`"
            yield _heading(title, plugin.__doc__) + "\n\n" + key_rows(section, plugin.Config)


def _heading(title: str, docstring: str | None) -> str:
    first = " ".join((docstring or "").strip().split("\n\n")[0].split())
    return f"**{title}** {first}"


def key_rows(section: str, config: type[Section]) -> str:
    """Markdown: a row a key of `config`, with its type, default and meaning."""
    lines = [*HEADER]
    for key, field in config.model_fields.items():
        cells = (f"`{section}.{key}`", type_name(field.annotation), _default(field), field.description or "")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def _default(field: FieldInfo) -> str:
    value: Any = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "required"
    if value == default_storage():
        return "`$CAIRN_HOME/storage`"
    if value is None:
        return "none"
    plain = list(value) if isinstance(value, tuple) else value
    return f"`{json.dumps(plain, ensure_ascii=False)}`"


def main(readme: Path = Path("README.md")) -> None:
    """Rewrite the table in place."""
    readme.write_text(rewrite(readme.read_text(encoding="utf-8"), MARKER, recipe_table()), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
