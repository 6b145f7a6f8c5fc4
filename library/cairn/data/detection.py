"""Which format the rows of a file are in, decided from the first ones, always the same way.

A format is a candidate where more than half of the rows fit it. Of the candidates the one that requires the most wins
(a type counts 1, a value 2), so that rows which lack something are told and not read as something lesser; then the
one that more rows fit, then the one that knows more of their keys. The confidence is the share of rows that
fit times the share of their keys that the format knows. Two that are alike in all this are ambiguous: an error, not a
guess. Nothing fits: the error shows the keys, the nearest formats with what each lacks, and a YAML to start from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import yaml

from cairn.data.fit import misfit
from cairn.data.format import Format, names
from cairn.data.layout import Check, Layout, kind_name
from cairn.errors import DataError

SAMPLE_ROWS = 50
NEAREST = 3
SHOWN_KEYS = 20


@dataclass(frozen=True)
class Candidate:
    """A format and how well it describes some rows. `fitting` and `known` are shares from 0 to 1."""

    format: Format
    fitting: float
    known: float

    @cached_property
    def strictness(self) -> int:
        """How much the format asks of a row."""
        return sum(2 if isinstance(wanted, Check) else 1 for wanted in self.format.layout.requires.values())

    @property
    def confidence(self) -> float:
        """From 0 to 1."""
        return self.fitting * self.known

    @property
    def order(self) -> tuple[float, ...]:
        """Greater is better."""
        return (self.strictness, round(self.fitting, 3), round(self.known, 3))


@dataclass(frozen=True)
class Detection:
    """The format found, and the next best if there is one."""

    best: Candidate
    runner_up: Candidate | None


def candidates(rows: Sequence[Any]) -> list[Candidate]:
    """Every format that more than half of the rows fit, the best first."""
    objects = [row for row in rows if isinstance(row, dict)]
    counts = Counter(key for row in objects for key in row)
    common = {key for key, count in counts.items() if 2 * count > len(rows)}
    found = []
    for name in names() if objects else ():
        format = Format.load(name)
        fitting = [row for row in objects if format.fits(row)] if format.needed_keys <= common else ()
        if 2 * len(fitting) > len(rows):
            found.append(Candidate(format, len(fitting) / len(rows), _known(format, fitting)))
    return sorted(found, key=lambda candidate: (*(-part for part in candidate.order), candidate.format.name))


def detect(rows: Sequence[Any], *, where: str) -> Detection:
    """The format of `rows`; a DataError where none fits or two fit alike."""
    found = candidates(rows)
    if not found:
        raise _unknown(rows, where)
    best, runner_up = found[0], found[1] if len(found) > 1 else None
    if runner_up is not None and runner_up.order == best.order:
        raise DataError(
            f"rows with the keys {_keys(rows)} fit {best.format.name} and {runner_up.format.name} alike",
            where=where,
            next_step=f"say which: data.format={best.format.name} or data.format={runner_up.format.name}",
        )
    return Detection(best, runner_up)


def draft(row: Any) -> str:
    """A format's YAML to start from: every key of the row with its type, and a guess at nothing."""
    keys = dict(islice(row.items(), SHOWN_KEYS)) if isinstance(row, dict) else {}
    requires = {key: kind for key, value in keys.items() if (kind := _kind(value))}
    texts = [key for key, kind in requires.items() if kind == "string"]
    layout = {
        "about": "what such a row looks like",
        "record": "conversation",
        "requires": requires,
        "messages": [
            {"role": "user", "content": texts[:1] or ["KEY"]},
            {"role": "assistant", "content": texts[1:2] or ["KEY"]},
        ],
    }
    return yaml.safe_dump(layout, sort_keys=False, allow_unicode=True)


def _known(format: Format, rows: Sequence[dict[str, Any]]) -> float:
    keys = {key for row in rows for key in row}
    return len(keys & format.layout.known_keys) / len(keys) if keys else 0.0


def _unknown(rows: Sequence[Any], where: str) -> DataError:
    first = next((row for row in rows if isinstance(row, dict)), None)
    if first is None:
        return DataError(
            f"a row is an object, found {kind_name(rows[0]) if rows else 'no rows'}",
            where=where,
            next_step="give files whose rows are JSON objects or have columns",
        )
    lacking = "".join(f"\n    {name}: {problem}" for name, problem in _nearest(first, rows))
    nearest = f"the nearest lack:{lacking}" if lacking else "none has any of them"
    indented = draft(first).replace("\n", "\n      ").rstrip()
    return DataError(
        f"rows with the keys {_keys(rows)} are of no known format; {nearest}",
        where=where,
        next_step=f"name a format (data.format), or begin a YAML of your own, data.format=./mine.yaml:\n      {indented}",
    )


def _nearest(row: dict[str, Any], rows: Sequence[Any]) -> list[tuple[str, str]]:
    """Formats that share most with the row (its keys that they know, what they require of it), and what it lacks."""
    rated = []
    for name in names():
        layout = Format.load(name).layout
        met = sum(
            misfit(layout.model_copy(update={"requires": {path: wanted}, "excludes": (), "closed": False}), row) is None
            for path, wanted in layout.requires.items()
        )
        shared = len(layout.known_keys & set(row)) / len(row) if row else 0.0
        if met or shared:
            rated.append((-met / len(layout.requires) - shared, name, misfit(layout, row) or _exception(layout, rows)))
    return [(name, problem) for _, name, problem in sorted(rated)[:NEAREST]]


def _exception(layout: Layout, rows: Sequence[Any]) -> str:
    """Why a format that the first row fits is not that of the rows."""
    problems = [problem for row in rows if isinstance(row, dict) and (problem := misfit(layout, row))]
    return f"{len(problems)} of {len(rows)} rows do not fit, the first: {problems[0]}" if problems else "other rows"


def _keys(rows: Sequence[Any]) -> str:
    seen = {key: None for row in rows if isinstance(row, dict) for key in row}
    more = f" and {len(seen) - SHOWN_KEYS} more" if len(seen) > SHOWN_KEYS else ""
    return ", ".join(map(str, islice(seen, SHOWN_KEYS))) + more or "(none)"


def _kind(value: Any) -> str:
    name = kind_name(value)
    return name if name in ("string", "list", "number", "boolean", "object") else ""
