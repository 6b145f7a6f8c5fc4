"""Names of adapters and aliases, and references to them: `support`, `support@3`, `support@prod`.

A name becomes a folder and comes from users and HTTP bodies, so it is matched whole against a short alphabet
without separators; `:` and `+` stay free for weighted mixtures of adapters, `auto` for routing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cairn.errors import AdapterError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_VERSION = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
RESERVED = ("auto",)


@dataclass(frozen=True)
class Reference:
    """A name with a version, an alias, or neither (the newest version)."""

    name: str
    version: int | None = None
    alias: str | None = None


def parse_reference(text: str) -> Reference:
    """`name`, `name@3` or `name@alias`; AdapterError for anything else."""
    name, separator, pointer = text.partition("@")
    check_name(name)
    if not separator:
        return Reference(name)
    version = parse_version(pointer)
    return Reference(name, version=version) if version else Reference(name, alias=check_alias(pointer))


def parse_version(text: str) -> int | None:
    """The version number a text is, or None."""
    return int(text) if _VERSION.fullmatch(text) else None


def check_name(name: str) -> str:
    """`name` when it may name an adapter, else AdapterError."""
    if not _NAME.fullmatch(name):
        raise AdapterError(
            f"{name[:80]!r} cannot name an adapter",
            next_step="use 1 to 64 letters, digits, '.', '_' or '-', a letter or digit first",
        )
    if name.lower() in RESERVED:
        raise AdapterError(f"'{name}' is reserved", next_step="choose another name")
    return name


def check_alias(alias: str) -> str:
    """`alias` when it may name an alias, else AdapterError; digits alone would read as a version."""
    if not _NAME.fullmatch(alias) or alias.isdigit():
        raise AdapterError(
            f"{alias[:80]!r} cannot be an alias or a version",
            next_step="a version is a number from 1; an alias has letters, digits, '.', '_' or '-', not digits alone",
        )
    return alias
