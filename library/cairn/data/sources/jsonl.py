"""Files to raw lines: .jsonl, .ndjson, .json (an array or lines) and .txt, each also as .zst and .gz.

Lines are cut at `\\n` alone and stay bytes, so byte counts are the file's own. Compressed and plain lines stream with
memory bounded by the longest line. A JSON array is one value, so that one file is held in memory as a whole; a
.txt file is one document and so one Line.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cairn.data.sources.files import kind_of
from cairn.data.sources.zstd import zstd_pieces
from cairn.errors import DataError

CHUNK_BYTES = 1 << 16
MAX_LINE_BYTES = 1 << 30
"""A longer line is taken for a file without line ends; the Pile's longest documents are some tens of MB."""


@dataclass(frozen=True)
class Line:
    """`number` from 1; `offset` is the byte of its first character in the uncompressed text."""

    file: str
    number: int
    offset: int
    data: bytes


def read_lines(path: Path | str, *, on_bytes: Callable[[int], None] | None = None) -> Iterator[Line]:
    """Every line of `path`, blank ones too. `on_bytes` is told the bytes of the file read so far.

    Raises DataError with file and byte for a truncated or damaged file, and for one that cannot be opened.
    """
    path = Path(path)
    content, compression = kind_of(path)
    pieces = _pieces(path, compression, on_bytes)
    if content == "text":
        yield Line(str(path), 1, 0, b"".join(pieces))
    elif content == "json":
        yield from _json_lines(path, pieces)
    else:
        yield from _split(path, pieces)


def _pieces(path: Path, compression: str, on_bytes: Callable[[int], None] | None) -> Iterator[bytes]:
    """Uncompressed pieces of the file, about 64 to 128 KiB each."""
    try:
        with path.open("rb") as stream:
            if compression == "zst":
                source = zstd_pieces(path, stream)
            elif compression == "gz":
                source = _gzip_pieces(path, gzip.GzipFile(fileobj=stream, mode="rb"))
            else:
                source = iter(lambda: stream.read(CHUNK_BYTES), b"")
            for piece in source:
                if on_bytes is not None:
                    on_bytes(stream.tell())
                yield piece
    except OSError as error:
        raise DataError(
            f"the file cannot be read ({error})", where=str(path), next_step="check the path and its permissions"
        ) from None


def _gzip_pieces(path: Path, stream: gzip.GzipFile) -> Iterator[bytes]:
    read = 0
    try:
        while piece := stream.read(CHUNK_BYTES):
            read += len(piece)
            yield piece
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        size = path.stat().st_size
        raise DataError(
            f"the file is truncated or damaged: {error} (after {read} bytes of text, file of {size} bytes)",
            where=str(path),
            next_step="fetch the file again and compare its size and checksum",
        ) from None


def _split(path: Path, pieces: Iterator[bytes]) -> Iterator[Line]:
    """Cut at line ends; the last line needs none."""
    file, number, offset = str(path), 1, 0
    open_parts: list[bytes] = []
    open_bytes = 0
    for piece in pieces:
        *whole, rest = piece.split(b"\n")
        for end in whole:
            data = b"".join((*open_parts, end))
            yield Line(file, number, offset, data)
            number, offset = number + 1, offset + len(data) + 1
            open_parts, open_bytes = [], 0
        if rest:
            open_parts.append(rest)
            open_bytes += len(rest)
            if open_bytes > MAX_LINE_BYTES:
                raise DataError(
                    f"a line of more than {MAX_LINE_BYTES} bytes begins at byte {offset}",
                    where=f"{path}:{number}",
                    next_step="a JSON-lines file has one object a line",
                )
    if open_parts:
        yield Line(file, number, offset, b"".join(open_parts))


def _json_lines(path: Path, pieces: Iterator[bytes]) -> Iterator[Line]:
    """A .json file: one array of rows, or JSON lines under another name."""
    first = next((piece for piece in pieces if piece.strip()), b"")
    if not first.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        yield from _split(path, _chained(first, pieces))
        return
    raw = b"".join(_chained(first, pieces))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"not UTF-8 at byte {error.start}", where=str(path), next_step="save the file as UTF-8"
        ) from None
    yield from _elements(path, text)


def _chained(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _elements(path: Path, text: str) -> Iterator[Line]:
    """Each element of a JSON array, at the line where it begins."""
    decoder = json.JSONDecoder()
    at = _skip_space(text, text.index("[") + 1)
    number, counted, offset = 1, 0, 0
    while not text.startswith("]", at):
        try:
            _, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            line = text.count("\n", 0, error.pos) + 1
            raise DataError(
                f"not valid JSON: {error.msg}", where=f"{path}:{line}", next_step="mend the array, or use JSON lines"
            ) from None
        number += text.count("\n", counted, at)
        offset += len(text[counted:at].encode())
        counted = at
        yield Line(str(path), number, offset, text[at:end].encode())
        at = _skip_space(text, end)
        if text.startswith(",", at):
            at = _skip_space(text, at + 1)
        elif not text.startswith("]", at):
            raise DataError(
                "the JSON array is truncated or lacks a comma",
                where=f"{path}:{text.count(chr(10), 0, at) + 1}",
                next_step="mend the array, or use JSON lines",
            )


def _skip_space(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t", "\r", "\n") and at < len(text):
        at += 1
    return at
