"""Files to records: lines, JSON, format, subset and limit in one stream, with a reason for every line left out.

JSON is read strictly: invalid UTF-8 and lone surrogates are refused (they could not be counted in bytes), the last
of doubled keys counts, one bad line costs one line. With `auto` the format is that of the file's first row that fits any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from cairn.data.components import canonical_tag
from cairn.data.drops import DropReason, Rejected
from cairn.data.format import Format, detect, names
from cairn.data.sources.files import kind_of, resolve
from cairn.data.sources.jsonl import Line, read_lines
from cairn.errors import DataError
from cairn.records import Document, Record, Source

AUTO = "auto"
DETECTION_ROWS = 100
"""Rows tried before a file is given up as being of no known format."""

_decode = msgspec.json.Decoder().decode


def read_records(
    files: Iterable[str | Path],
    format: str = AUTO,
    limit: int | None = None,
    subsets: Iterable[str] = (),
    *,
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[Record | Rejected]:
    """Every line of `files` as a Record or as a Rejected; `limit` counts the records of each file.

    Raises DataError for a missing, truncated or damaged file and for one of no known format. Subsets match by tag or
    by an alias of the Pile.
    """
    wanted = frozenset(canonical_tag(subset) for subset in subsets)
    for path in resolve(files):
        yield from _file_records(path, format, limit, wanted, on_bytes)


def _file_records(
    path: Path, format: str, limit: int | None, wanted: frozenset[str], on_bytes: Callable[[int], None] | None
) -> Iterator[Record | Rejected]:
    chosen = Format.load(format) if format != AUTO else None
    as_text = kind_of(path)[0] == "text"
    tried = taken = 0
    for line in read_lines(path, on_bytes=on_bytes):
        source = Source(line.file, line.number)
        row = _row(line, as_text=as_text)
        if isinstance(row, Rejected):
            yield row
            continue
        if chosen is None:
            chosen, tried = detect(row), tried + 1
            if chosen is None:
                if tried == DETECTION_ROWS:
                    raise _no_format(path, row)
                yield Rejected(source, DropReason.NOT_OF_FORMAT, f"{_shape(row)} is of no known format")
                continue
        record = _record(chosen, row, source, wanted)
        yield record
        taken += not isinstance(record, Rejected)
        if taken == limit:
            return
    if chosen is None and tried:
        raise _no_format(path, row)


def _row(line: Line, *, as_text: bool) -> Any:
    """The line's value, or a Rejected."""
    source = Source(line.file, line.number)
    try:
        if as_text:
            return {"text": line.data.decode("utf-8")}
        if not line.data.strip():
            return Rejected(source, DropReason.BLANK_LINE)
        return _decode(line.data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Rejected(source, DropReason.NOT_JSON, f"{error} (the line begins at byte {line.offset})")


def _record(format: Format, row: Any, source: Source, wanted: frozenset[str]) -> Record | Rejected:
    try:
        record = format.record(row, source)
    except DataError as error:
        return Rejected(source, DropReason.NOT_OF_FORMAT, error.what)
    if wanted and canonical_tag(record.subset) not in wanted:
        return Rejected(source, DropReason.OTHER_SUBSET)
    return record


def _shape(row: Any) -> str:
    return f"a row with the fields {', '.join(sorted(row))}" if isinstance(row, dict) else "a row that is no object"


def _no_format(path: Path, row: Any) -> DataError:
    known = "; ".join(Format.load(name).layout.about for name in names())
    return DataError(
        f"no row fits a known format; the last one tried is {_shape(row)}",
        where=str(path),
        next_step=f"the known ones are: {known}",
    )


def read_documents(
    files: Iterable[str | Path], format: str = AUTO, limit: int | None = None, subsets: Iterable[str] = ()
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
