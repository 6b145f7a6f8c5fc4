"""A recipe's plain values as the YAML that a person would write: sections in order, short values in one line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from cairn.config.recipe import PLUGIN_SECTIONS


def recipe_yaml(values: Mapping[str, Mapping[str, Any]], comments: Sequence[str] = ()) -> str:
    """The text, with `comments` as its head."""
    return "\n".join([*(f"# {line}".rstrip() for line in comments), *_sections(values)]) + "\n"


def _sections(values: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, section in values.items():
        if name in PLUGIN_SECTIONS:
            yield f"{name}: {_flow(dict(section))}"
        else:
            yield f"{name}:"
            yield from (f"  {key}: {_flow(value)}" for key, value in section.items())


def _flow(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10_000)
    return text.removesuffix("\n").removesuffix("\n...")
