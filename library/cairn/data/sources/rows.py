"""One door to the rows of any file: its kind picks the reader, and each row comes with where it stood.

To add a kind: its suffix in `kinds.py` and its reader here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cairn.data.drops import DropReason, Rejected
from cairn.data.sources.columnar import arrow_rows, parquet_rows
from cairn.data.sources.compression import OnBytes, read_pieces
from cairn.data.sources.delimited import delimited_rows
from cairn.data.sources.jsonl import json_rows
from cairn.data.sources.kinds import TREE_KIND, kind_of
from cairn.data.sources.location import Location
from cairn.data.sources.tree import tree_rows
from cairn.records import Source


def read_rows(place: Location | Path | str, *, on_bytes: OnBytes = None) -> Iterator[tuple[Source, Any]]:
    """(source, row) for every row of a file or a source tree, in order; a Rejected stands for a row that is none.

    A row is what JSON could hold, mostly a dict. The source's number is the line where the row begins, in Parquet and
    Arrow the row, both from 1. `on_bytes` is told the bytes of the file read so far. Raises DataError, with file and
    byte or row, for a truncated or damaged file and for one that cannot be opened.
    """
    location = Location.of(place)
    return READERS[kind_of(location).content](location, on_bytes)


def _document(location: Location, on_bytes: OnBytes) -> Iterator[tuple[Source, Any]]:
    """The whole file as one text."""
    kind = kind_of(location)
    data = b"".join(read_pieces(location, kind.compression, on_bytes))
    source = Source(str(location), 1)
    try:
        row: dict[str, str] = {"text": data.decode("utf-8")}
    except UnicodeDecodeError as error:
        yield source, Rejected(source, DropReason.DAMAGED_ROW, f"not UTF-8 at byte {error.start}")
        return
    if kind.content == "code":
        row["path"] = str(location)
    yield source, row


READERS: dict[str, Callable[[Location, OnBytes], Iterator[tuple[Source, Any]]]] = {
    "lines": json_rows,
    "json": json_rows,
    "csv": delimited_rows,
    "tsv": delimited_rows,
    "parquet": parquet_rows,
    "arrow": arrow_rows,
    "text": _document,
    "code": _document,
    TREE_KIND: tree_rows,
}
