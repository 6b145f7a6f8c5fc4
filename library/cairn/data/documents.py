"""Files to records: rows, format, subset and limit in one stream, with a reason for every row left out.

JSON is read strictly: invalid UTF-8 and lone surrogates are refused (they could not be counted in bytes), the last
of doubled keys counts, one bad line costs one line. With `auto` the format is detected from a file's first rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from cairn.data.detection import SAMPLE_ROWS, detect
from cairn.data.drops import DropReason, LeftOut, Rejected
from cairn.data.format import Format
from cairn.data.paths import value_at
from cairn.data.selection import Selection
from cairn.data.sources.files import resolve
from cairn.data.sources.location import Location
from cairn.data.sources.rows import read_rows
from cairn.errors import DataError
from cairn.records import Document, Record, Source

AUTO, EVERYTHING = "auto", Selection()
FormatChoice = str | Mapping[str, Any]
"""A format's name, the path of its YAML, or a mapping that changes one."""


def read_records(
    files: Iterable[Location | str | Path],
    format: FormatChoice = AUTO,
    limit: int | None = None,
    subsets: Iterable[str] = (),
    *,
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[Record | Rejected]:
    """Every row of `files` as a Record or as a Rejected; `limit` counts the records of each file.

    Raises DataError for a missing, truncated or damaged file and for one of no known format. `subsets`: the words of a
    `Selection`.
    """
    wanted = Selection.of(subsets)
    for location in resolve(files):
        yield from _file_records(location, format, limit, wanted, on_bytes)


def _file_records(
    location: Location,
    format: FormatChoice,
    limit: int | None,
    wanted: Selection,
    on_bytes: Callable[[int], None] | None,
) -> Iterator[Record | Rejected]:
    rows = read_rows(location, on_bytes=on_bytes)
    if format == AUTO:
        seen, rows = _peeked(rows)
        if not seen:
            yield from (row for _, row in rows)
            return
        chosen = detect(seen, where=str(location)).best.format
    else:
        chosen = Format.load(format)
    taken = 0
    for source, row in _grouped(rows, chosen.layout.group_by):
        for record in _records(chosen, row, source, wanted):
            yield record
            if limit is not None:
                taken += not isinstance(record, Rejected)
                if taken == limit:
                    return


def first_rows(path: Location | Path | str) -> list[Any]:
    """The rows of a file that detection goes by; those that cannot be read are left out."""
    return _peeked(read_rows(path))[0]


def _peeked(rows: Iterator[tuple[Source, Any]]) -> tuple[list[Any], Iterator[tuple[Source, Any]]]:
    """The first rows that can be read, and all rows as if none had been taken."""
    taken: list[tuple[Source, Any]] = []
    seen: list[Any] = []
    for source, row in rows:
        taken.append((source, row))
        if not isinstance(row, Rejected):
            seen.append(row)
        if len(seen) == SAMPLE_ROWS:
            break
    return seen, chain(taken, rows)


def _grouped(rows: Iterator[tuple[Source, Any]], path: str | None) -> Iterator[tuple[Source, Any]]:
    """Neighbouring rows with the same value at `path` as one; the rows themselves where there is no path."""
    return rows if path is None else _groups(rows, path)


def _groups(rows: Iterator[tuple[Source, Any]], path: str) -> Iterator[tuple[Source, Any]]:
    def key(pair: tuple[Source, Any]) -> Any:
        return None if isinstance(pair[1], Rejected) else json.dumps(value_at(pair[1], path), default=str)

    for value, group in groupby(rows, key):
        pairs = list(group)
        if value is None:
            yield from pairs
        else:
            yield pairs[0][0], {"rows": [row for _, row in pairs]}


def _records(format: Format, row: Any, source: Source, wanted: Selection) -> Sequence[Record | Rejected]:
    if isinstance(row, Rejected):
        return (row,)
    try:
        records = format.records(row, source)
    except LeftOut as left_out:
        return (Rejected(source, left_out.reason, left_out.what),)
    except DataError as error:
        return (Rejected(source, DropReason.NOT_OF_FORMAT, error.what),)
    if wanted == EVERYTHING:
        return records
    return [r if (r.subset, source) in wanted else Rejected(source, DropReason.OTHER_SUBSET) for r in records]


def read_documents(
    files: Iterable[Location | str | Path],
    format: FormatChoice = AUTO,
    limit: int | None = None,
    subsets: Iterable[str] = (),
) -> Iterator[Document]:
    """Every document of `files`, for scoring: a line that is no document is an error, for nothing may be left out.

    Blank lines and other subsets are passed over. Raises DataError with file and line.
    """
    for record in read_records(files, format, limit, subsets):
        if isinstance(record, Rejected):
            if record.reason.unusable:
                raise DataError(
                    f"{record.reason}: {record.detail}", where=str(record.source), next_step="mend or remove that line"
                )
        elif isinstance(record, Document):
            yield record
        else:
            raise DataError(
                f"documents are needed, this is a {type(record).__name__.lower()}",
                where=str(record.source),
                next_step=f"use files such as {Format.load('pile').layout.about}",
            )
