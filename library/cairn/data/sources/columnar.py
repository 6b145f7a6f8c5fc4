"""Parquet and Arrow to rows, a record batch at a time, with values as JSON would hold them.

Dates and times become ISO text, decimals numbers where none of their digits is lost, bytes text where they are UTF-8,
maps objects, NaN (pandas' missing number) null; what cannot be had so costs its row, with a reason. In a nested
struct a null stands for a key that the row never had (one schema holds the keys of all rows), so it is left out;
a column's own null stays. Memory: one batch, plus Parquet's pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, BinaryIO
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from cairn.data.drops import DropReason, Rejected
from cairn.data.sources.compression import FETCH_AGAIN, OnBytes
from cairn.data.sources.location import Location
from cairn.errors import DataError
from cairn.records import Source

BATCH_ROWS = 256
BUFFER_BYTES = 1 << 20
"""How much of a Parquet column is fetched at once; without it a whole row group would be."""

ARROW_FILE_MAGIC = b"ARROW1"
STREAM_ENDS = (b"\xff\xff\xff\xff\0\0\0\0", b"\0\0\0\0")
"""The end-of-stream mark, today's and that of Arrow before 0.15 (columnar format, "IPC streaming format")."""

Batches = Iterator[tuple[pa.RecordBatch, float]]
"""Batches, each with the share of the file that is read once it is."""


class _NotJsonError(Exception):
    """A value that JSON cannot hold."""


def parquet_rows(location: Location, on_bytes: OnBytes) -> Iterator[tuple[Source, Any]]:
    """Each row of a Parquet file, numbered from 1."""
    yield from _rows(location, on_bytes, _parquet_batches)


def arrow_rows(location: Location, on_bytes: OnBytes) -> Iterator[tuple[Source, Any]]:
    """Each row of an Arrow IPC file or stream (`datasets` writes streams), numbered from 1."""
    yield from _rows(location, on_bytes, _arrow_batches)


def _rows(
    location: Location, on_bytes: OnBytes, batches_of: Callable[[BinaryIO, int], Batches]
) -> Iterator[tuple[Source, Any]]:
    number = 0
    with location.failures(), location.open() as stream:
        size = location.size()
        try:
            for batch, share in batches_of(stream, size):
                if on_bytes is not None:
                    on_bytes(int(share * size))
                for row in _batch_rows(batch):
                    number += 1
                    source = Source(str(location), number)
                    yield source, _plain_row(row, source)
            if on_bytes is not None:
                on_bytes(size)
        except (pa.ArrowException, OSError, EOFError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DataError(
                f"the file is truncated or damaged after row {number} ({reason}; file of {size} bytes)",
                where=str(location),
                next_step=FETCH_AGAIN,
            ) from None


def _parquet_batches(stream: BinaryIO, size: int) -> Batches:
    file = pq.ParquetFile(stream, buffer_size=BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True)
    done = 0
    for batch in file.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
        done += batch.num_rows
        yield batch, done / max(1, file.metadata.num_rows)
    if done != file.metadata.num_rows:
        raise pa.ArrowInvalid(f"the footer promises {file.metadata.num_rows} rows")


def _arrow_batches(stream: BinaryIO, size: int) -> Batches:
    if size == 0:
        return
    is_file = stream.read(len(ARROW_FILE_MAGIC)) == ARROW_FILE_MAGIC
    if is_file:
        stream.seek(0)
        file = pa.ipc.open_file(stream)
        for index in range(file.num_record_batches):
            yield from _slices(file.get_batch(index), (index + 1) / file.num_record_batches)
        return
    stream.seek(max(0, size - 8))
    if not stream.read(8).endswith(STREAM_ENDS):
        raise pa.ArrowInvalid("it has no end-of-stream mark")
    stream.seek(0)
    for batch in pa.ipc.open_stream(stream):
        yield from _slices(batch, stream.tell() / size)


def _slices(batch: pa.RecordBatch, share: float) -> Batches:
    for start in range(0, batch.num_rows, BATCH_ROWS):
        yield batch.slice(start, BATCH_ROWS), share


def _batch_rows(batch: pa.RecordBatch) -> list[Any]:
    """The rows as Python values; one by one where a text in the batch is not UTF-8."""
    try:
        return batch.to_pylist()
    except UnicodeDecodeError:
        return [_single(batch.slice(index, 1)) for index in range(batch.num_rows)]


def _single(batch: pa.RecordBatch) -> Any:
    try:
        return batch.to_pylist()[0]
    except UnicodeDecodeError as error:
        return error


def _plain_row(row: Any, source: Source) -> Any:
    if isinstance(row, UnicodeDecodeError):
        return Rejected(source, DropReason.DAMAGED_ROW, f"a text is not UTF-8 ({row})")
    try:
        return {name: _plain(value, name) for name, value in row.items()}
    except _NotJsonError as error:
        return Rejected(source, DropReason.DAMAGED_ROW, str(error))


def _plain(value: Any, field: str) -> Any:
    """A value of Arrow's in the types of JSON; `field` is its dotted path."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if math.isinf(value):
            raise _NotJsonError(f"field '{field}': {value} is no number of JSON")
        return None if math.isnan(value) else value
    if isinstance(value, dict):
        return {key: _plain(part, f"{field}.{key}") for key, part in value.items() if part is not None}
    if isinstance(value, list):
        if value and all(isinstance(part, tuple) for part in value):
            return _plain_map(value, field)
        return [_plain(part, f"{field}.{index}") for index, part in enumerate(value)]
    return _plain_scalar(value, field)


def _plain_map(pairs: list[Any], field: str) -> Any:
    """An Arrow map, which Python sees as pairs: an object where its keys are texts."""
    if all(isinstance(key, str) for key, _ in pairs):
        return {key: _plain(value, f"{field}.{key}") for key, value in pairs}
    return [[_plain(key, field), _plain(value, field)] for key, value in pairs]


def _plain_scalar(value: Any, field: str) -> Any:
    if isinstance(value, (bytes, bytearray)):
        try:
            return bytes(value).decode("utf-8")
        except UnicodeDecodeError:
            raise _NotJsonError(f"field '{field}': {len(value)} bytes that are no UTF-8 text") from None
    if isinstance(value, Decimal):
        if value == value.to_integral_value():
            return int(value)
        return float(value) if Decimal(repr(float(value))) == value else str(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "total_seconds"):
        return value.total_seconds()
    if isinstance(value, UUID):
        return str(value)
    raise _NotJsonError(f"field '{field}': a value of type {type(value).__name__} has no form in JSON")
