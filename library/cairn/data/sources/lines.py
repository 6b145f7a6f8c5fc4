"""Pieces of bytes cut into lines at `\\n` alone; lines stay bytes, so byte counts are the file's own.

Memory is bounded by the longest line.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cairn.data.sources.location import Location
from cairn.errors import DataError

MAX_LINE_BYTES = 1 << 30
"""A longer line is taken for a file without line ends; the Pile's longest documents are some tens of MB."""


class Line(msgspec.Struct, frozen=True):
    """`number` from 1; `offset` is the byte of its first character in the uncompressed text."""

    file: str
    number: int
    offset: int
    data: bytes


def cut_lines(location: Location, pieces: Iterator[bytes]) -> Iterator[Line]:
    """Every line, blank ones too; the last one needs no end."""
    file, number, offset = str(location), 1, 0
    open_parts: list[bytes] = []
    open_bytes = 0
    for piece in pieces:
        *whole, rest = piece.split(b"\n")
        if whole and open_parts:
            whole[0] = b"".join((*open_parts, whole[0]))
            open_parts, open_bytes = [], 0
        for data in whole:
            yield Line(file, number, offset, data)
            number, offset = number + 1, offset + len(data) + 1
        if rest:
            open_parts.append(rest)
            open_bytes += len(rest)
            if open_bytes > MAX_LINE_BYTES:
                raise DataError(
                    f"a line of more than {MAX_LINE_BYTES} bytes begins at byte {offset}",
                    where=f"{location}:{number}",
                    next_step="a JSON-lines or CSV file has its rows on lines",
                )
    if open_parts:
        yield Line(file, number, offset, b"".join(open_parts))
