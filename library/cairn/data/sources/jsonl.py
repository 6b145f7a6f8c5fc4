"""Files to raw lines: .jsonl, .ndjson, .json (an array, one value over many lines, or lines) and .txt, .md.

Compressed and plain lines stream with memory bounded by the longest line. A JSON array or a value over many lines is
held in memory as a whole; a .txt or .md file is one document and so one Line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from cairn.data.drops import DropReason, Rejected
from cairn.data.sources.compression import read_pieces
from cairn.data.sources.kinds import kind_of
from cairn.data.sources.lines import Line, cut_lines
from cairn.data.sources.location import Location
from cairn.errors import DataError
from cairn.records import Source

BOM = b"\xef\xbb\xbf"
SPACE = BOM + b" \t\r\n"

_decode = msgspec.json.Decoder().decode


def read_lines(place: Location | Path | str, *, on_bytes: Callable[[int], None] | None = None) -> Iterator[Line]:
    """Every line of a file, blank ones too. `on_bytes` is told the bytes of the file read so far.

    Raises DataError with file and byte for a truncated or damaged file, and for one that cannot be opened.
    """
    location = Location.of(place)
    kind = kind_of(location)
    pieces = read_pieces(location, kind.compression, on_bytes)
    if kind.content == "json":
        yield from _json_lines(location, pieces)
    elif kind.content in ("text", "code"):
        yield Line(str(location), 1, 0, b"".join(pieces))
    else:
        yield from cut_lines(location, pieces)


def json_rows(location: Location, on_bytes: Callable[[int], None] | None) -> Iterator[tuple[Source, Any]]:
    """Each line's value with its source, or a Rejected in its place."""
    for line in read_lines(location, on_bytes=on_bytes):
        source = Source(line.file, line.number)
        data = line.data
        if line.number == 1:
            data = data.removeprefix(BOM)
        try:
            row = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if data.strip():
                detail = f"{error} (the line begins at byte {line.offset})"
                row = Rejected(source, DropReason.NOT_JSON, detail)
            else:
                row = Rejected(source, DropReason.BLANK_LINE)
        yield source, row


def _json_lines(location: Location, pieces: Iterator[bytes]) -> Iterator[Line]:
    """A .json file: an array of rows, values over many lines each, or JSON lines under another name."""
    head = _first_line(pieces)
    start = head.lstrip(SPACE)
    if start.startswith(b"["):
        yield from _elements(location, _text(location, head, pieces))
    elif _goes_on(start):
        yield from _values(location, _text(location, head, pieces))
    else:
        yield from cut_lines(location, chain([head], pieces))


def _first_line(pieces: Iterator[bytes]) -> bytes:
    """Pieces up to the end of the first line that is not blank, or to the bracket that opens an array."""
    parts: list[bytes] = []
    blank = True
    for piece in pieces:
        parts.append(piece)
        start = piece.lstrip(SPACE) if blank else piece
        if (blank and start.startswith(b"[")) or b"\n" in start:
            break
        blank = blank and not start
    return b"".join(parts)


def _goes_on(start: bytes) -> bool:
    """Whether the first line is the beginning of a value that ends on a later one."""
    first, newline, _ = start.partition(b"\n")
    if not newline:
        return False
    try:
        _decode(first)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return "truncated" in str(error)
    return False


def _text(location: Location, head: bytes, pieces: Iterator[bytes]) -> str:
    try:
        return b"".join((head, *pieces)).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"not UTF-8 at byte {error.start}", where=str(location), next_step="save the file as UTF-8"
        ) from None


class _Cutter:
    """Finds JSON values in a text and says where each stands."""

    def __init__(self, location: Location, text: str) -> None:
        self.location, self.text = location, text
        self._decoder = json.JSONDecoder()
        self._number, self._offset, self._counted = 1, 0, 0

    def value(self, at: int) -> tuple[Line, int]:
        """The value that begins at `at`, and where the next thing stands."""
        text = self.text
        try:
            _, end = self._decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise DataError(
                f"not valid JSON: {error.msg}",
                where=f"{self.location}:{text.count(chr(10), 0, error.pos) + 1}",
                next_step="mend the array, or use JSON lines",
            ) from None
        except RecursionError:
            raise DataError(
                "the JSON is nested too deeply", where=f"{self.location}", next_step="flatten it, or use JSON lines"
            ) from None
        self._number += text.count("\n", self._counted, at)
        self._offset += len(text[self._counted : at].encode())
        self._counted = at
        line = Line(str(self.location), self._number, self._offset, text[at:end].encode())
        return line, self.skip_space(end)

    def skip_space(self, at: int) -> int:
        """The next place that is no white space."""
        text = self.text
        while at < len(text) and text[at] in " \t\r\n":
            at += 1
        return at


def _values(location: Location, text: str) -> Iterator[Line]:
    """Each value of a text of values one after the other."""
    cutter = _Cutter(location, text)
    at = cutter.skip_space(0)
    while at < len(text):
        line, at = cutter.value(at)
        yield line


def _elements(location: Location, text: str) -> Iterator[Line]:
    """Each element of a JSON array, at the line where it begins."""
    cutter = _Cutter(location, text)
    at = cutter.skip_space(text.index("[") + 1)
    while not text.startswith("]", at):
        line, at = cutter.value(at)
        yield line
        if text.startswith(",", at):
            at = cutter.skip_space(at + 1)
        elif not text.startswith("]", at):
            raise DataError(
                "the JSON array is truncated or lacks a comma",
                where=f"{location}:{text.count(chr(10), 0, at) + 1}",
                next_step="mend the array, or use JSON lines",
            )
