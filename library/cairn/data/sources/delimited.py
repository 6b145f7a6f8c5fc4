"""CSV and TSV to rows: a header, then one row at a time, every cell a text as it stands.

Bytes are cut into lines before they are decoded, so a byte that is not UTF-8 costs its row and no other. Quoting is
strict: a quote that never closes would otherwise swallow the rest of the file as one cell. A comma-separated file
whose header has no comma but semicolons or tabs is read by those.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

from cairn.data.drops import DropReason, Rejected
from cairn.data.sources.compression import OnBytes, read_pieces
from cairn.data.sources.kinds import kind_of
from cairn.data.sources.lines import Line, cut_lines
from cairn.data.sources.location import Location
from cairn.errors import DataError
from cairn.records import Source

MAX_CELL_CHARACTERS = 1 << 30
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class _Text:
    """Lines as csv wants them. `damage` says what was wrong with a line since it was last cleared."""

    def __init__(self, location: Location, lines: Iterator[Line]) -> None:
        self.location, self.lines = location, lines
        self.number = 0
        self.damage = ""

    def __iter__(self) -> Iterator[str]:
        for line in self.lines:
            self.number = line.number
            try:
                text = line.data.decode("utf-8")
            except UnicodeDecodeError as error:
                self.damage = f"not UTF-8 at byte {line.offset + error.start}"
                text = line.data.decode("utf-8", errors="replace")
            yield text + "\n"


def delimited_rows(location: Location, on_bytes: OnBytes) -> Iterator[tuple[Source, Any]]:
    """Each row as a dict of texts at the line where it begins, or a Rejected. DataError without a usable header."""
    kind = kind_of(location)
    lines = cut_lines(location, read_pieces(location, kind.compression, on_bytes))
    first = next(lines, None)
    if first is None:
        return
    header_line = _decoded_header(location, first)
    delimiter = "\t" if kind.content == "tsv" else _delimiter(header_line)
    csv.field_size_limit(MAX_CELL_CHARACTERS)
    header = _header(location, header_line, delimiter)
    text = _Text(location, lines)
    text.number = first.number
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    while True:
        source = Source(str(location), text.number + 1)
        text.damage = ""
        try:
            cells = next(reader, None)
        except csv.Error as error:
            if "unexpected end of data" in str(error):
                raise DataError(
                    "a quoted cell is never closed: the file is truncated or lacks a quote",
                    where=str(source),
                    next_step="close the quote, double quotes inside quoted cells, or fetch the file again",
                ) from None
            yield source, Rejected(source, DropReason.DAMAGED_ROW, str(error))
            continue
        if cells is None:
            return
        yield source, _row(header, cells, source, text.damage)


def _row(header: list[str], cells: list[str], source: Source, damage: str) -> Any:
    if not cells:
        return Rejected(source, DropReason.BLANK_LINE)
    if damage:
        return Rejected(source, DropReason.DAMAGED_ROW, damage)
    if len(cells) != len(header):
        return Rejected(
            source, DropReason.DAMAGED_ROW, f"{_counted(len(cells))}, the header has {_counted(len(header))}"
        )
    return dict(zip(header, cells, strict=True))


def _counted(cells: int) -> str:
    return f"{cells} cell" + ("s" if cells != 1 else "")


def _decoded_header(location: Location, line: Line) -> str:
    if line.data.startswith(UTF_16_MARKS):
        raise DataError("the file is in UTF-16", where=str(location), next_step="save it as UTF-8")
    try:
        return line.data.decode("utf-8-sig").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise DataError(
            f"the header is not UTF-8 at byte {error.start}", where=f"{location}:1", next_step="save the file as UTF-8"
        ) from None


def _delimiter(header: str) -> str:
    return next((mark for mark in (",", ";", "\t") if mark in header), ",")


def _header(location: Location, line: str, delimiter: str) -> list[str]:
    """The names of the columns; one may be empty, as pandas leaves the name of its index."""
    try:
        names = next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error as error:
        raise DataError(
            f"the header cannot be read ({error})", where=f"{location}:1", next_step="name the columns in one line"
        ) from None
    doubled = sorted({name for name in names if names.count(name) > 1})
    if not names or doubled:
        found = f"the names {', '.join(map(repr, doubled))} stand there twice" if doubled else "its first line is blank"
        raise DataError(
            f"the header is of no use: {found}",
            where=f"{location}:1",
            next_step="the first line names each column once",
        )
    return names
