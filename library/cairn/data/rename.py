"""A known format with changes: names replaced wherever they stand in a path, other keys laid over the format's own.

Everything that is not named keeps what the format says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cairn.data import paths
from cairn.data.layout import PLACEHOLDER

PATHS = {
    "text", "margin", "tools", "answer", "subset", "id", "group_by", "rows", "each", "split", "content", "role_at", "weight",
    "keep", "score", "rank", "at", "excludes", "knows",
}  # fmt: skip
"""Keys of a layout whose value is a path or several."""
PATHS_TO = {"fields"}
"""Keys whose values are paths under names."""
PATHS_FROM = {"requires", "wins", "ties"}
"""Keys whose own keys are paths."""


def changed(plain: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The format's YAML with `rename: {its name: the data's name}`, `roles: {name: role}` and any other key changed."""
    rest = dict(changes)
    names, roles = rest.pop("rename", {}), rest.pop("roles", {})
    result = _renamed(dict(plain), names)
    if roles:
        result = _with_roles(result, roles)
    return _laid_over(result, rest)


def _renamed(value: Any, names: Mapping[str, str], key: str = "") -> Any:
    if isinstance(value, str):
        if key == "template":
            return PLACEHOLDER.sub(lambda match: "{" + paths.renamed(match[1], names) + "}", value)
        return paths.renamed(value, names) if key in PATHS else value
    if isinstance(value, list):
        return [_renamed(item, names, key) for item in value]
    if not isinstance(value, dict):
        return value
    if key in PATHS_FROM:
        return {paths.renamed(path, names): item for path, item in value.items()}
    if key in PATHS_TO:
        return {name: paths.renamed(path, names) for name, path in value.items()}
    return {name: _renamed(item, names, name) for name, item in value.items()}


def _with_roles(value: Any, roles: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_with_roles(item, roles) for item in value]
    if not isinstance(value, dict):
        return value
    inner = {name: _with_roles(item, roles) for name, item in value.items()}
    return inner | {"roles": inner.get("roles", {}) | dict(roles)} if "role_at" in inner else inner


def _laid_over(base: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        inner = merged.get(key)
        merged[key] = _laid_over(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return merged
