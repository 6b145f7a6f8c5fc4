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
_WEIGHT = re.compile(r"-?([0-9]{1,4}(\.[0-9]{0,6})?|\.[0-9]{1,6})", re.ASCII)
MOST_PARTS = 16
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


def parse_mixture(text: str) -> list[tuple[str, float]]:
    """`support@3:0.7+legal:0.3` → references with their weights, 1 where none is given; AdapterError for anything else.

    At most 16 parts; a weight is a decimal number other than zero.
    """
    parts = text.split("+")
    if len(parts) > MOST_PARTS:
        raise AdapterError(f"a mixture of {len(parts)} adapters", next_step=f"mix at most {MOST_PARTS}")
    return [_parse_part(part) for part in parts]


def _parse_part(text: str) -> tuple[str, float]:
    reference, separator, weight = text.partition(":")
    parse_reference(reference)
    if separator and (not _WEIGHT.fullmatch(weight) or not float(weight)):
        raise AdapterError(
            f"{weight[:80]!r} cannot be the weight of {reference}",
            next_step="a weight is a decimal number other than 0, as in support:0.7+legal:0.3",
        )
    return reference, float(weight) if separator else 1.0


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
