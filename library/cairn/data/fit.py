"""Whether a row is of a format: quickly for rows that are, in words for those that are not.

What a format requires becomes one function when it is first used (`fitting`): a lookup and a test of the type for each
requirement. `misfit` asks the same of the layout itself and explains; only rows that do not fit pay for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from cairn.data.layout import ELEMENTS, KIND_TYPES, Check, Kind, Layout, is_kind
from cairn.data.paths import EVERY, MISSING, FieldError, first_keys, getter, value_at

Test = Callable[[Any], bool]


def fitting(layout: Layout) -> Test:
    """What says of a row whether `misfit` has nothing to say of it."""
    tests = tuple((getter(path), _test(as_check(wanted))) for path, wanted in layout.requires.items())
    excludes, known_keys = layout.excludes, layout.known_keys if layout.closed else None

    def fits(row: Mapping[str, Any]) -> bool:
        try:
            for find, passes in tests:
                if not passes(find(row)):
                    return False
        except FieldError:
            return False
        for key in excludes:
            if row.get(key) is not None:
                return False
        return known_keys is None or all(key in known_keys or value is None for key, value in row.items())

    return fits


def needed_keys(layout: Layout) -> frozenset[str]:
    """Keys without which no row fits."""
    needed = (path for path, wanted in layout.requires.items() if not _test(as_check(wanted))(MISSING))
    firsts = (tuple(first_keys(path)) for path in needed)
    return frozenset(keys[0] for keys in firsts if len(keys) == 1 and keys[0] != EVERY)


def _test(check: Check) -> Test:
    """Whether `check.misfit` has nothing to say of a value."""
    right, values, nullable = _of_type(check.kind), check.values, check.nullable
    search = re.compile(check.matches).search if check.matches is not None else None
    if not values and search is None and not nullable:
        return right

    def passes(found: Any) -> bool:
        if found is None and nullable:
            return True
        if not right(found) or (values and found not in values):
            return False
        return search is None or (isinstance(found, str) and search(found) is not None)

    return passes


def _of_type(kind: Kind | None) -> Test:
    if kind is None:
        return lambda _: True
    if kind in ELEMENTS or kind in ("number", "scalar"):
        return lambda found: is_kind(found, kind)
    types = KIND_TYPES[kind]
    return lambda found: isinstance(found, types)


def misfit(layout: Layout, row: Mapping[str, Any]) -> str | None:
    """Why a row is not of this format, or None: the first requirement that it does not meet."""
    for path, wanted in layout.requires.items():
        try:
            problem = as_check(wanted).misfit(value_at(row, path))
        except FieldError as error:
            problem = error.problem
        if problem is not None:
            return f"field '{path}': {problem}"
    for key in layout.excludes:
        if row.get(key) is not None:
            return f"field '{key}' makes it another format"
    for key in row if layout.closed else ():
        if row[key] is not None and key not in layout.known_keys:
            return f"field '{key}' is unknown to this format"
    return None


def as_check(wanted: Kind | Check) -> Check:
    """A requirement in its long form."""
    return wanted if isinstance(wanted, Check) else _of_kind(wanted)


@cache
def _of_kind(kind: Kind) -> Check:
    return Check(kind=kind, values=(), matches=None, nullable=False)
