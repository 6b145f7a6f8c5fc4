"""Every kind of file under every compression gives back its rows; damage is named and costs no more than it must."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import random
import tracemalloc
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from cairn.data.drops import DropReason, Rejected
from cairn.data.sources.kinds import CODE_SUFFIXES, CONTENTS, find_kind
from cairn.data.sources.rows import READERS, read_rows
from cairn.errors import DataError

pytestmark = pytest.mark.unit

ROWS = [{"text": 'eins, "zwei"\nüber', "tag": "a"}, {"text": "", "tag": "b"}, {"text": "🙂;\t'", "tag": "c" * 70_000}]
TEXT = "# é\r\n\nb\rc\n"
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
    ".xz": lambda data: lzma.compress(data, preset=0),
}


def json_lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def delimited(rows: list[dict[str, Any]], delimiter: str = ",") -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def parquet(table: pa.Table, **settings: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **settings)
    return sink.getvalue()


def arrow(table: pa.Table, *, stream: bool = True, batch_rows: int = 1000) -> bytes:
    sink = io.BytesIO()
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=batch_rows)
    return sink.getvalue()


WRITERS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    ".jsonl": json_lines,
    ".ndjson": json_lines,
    ".json": lambda rows: json.dumps(rows, indent=1).encode(),
    ".csv": delimited,
    ".tsv": lambda rows: delimited(rows, "\t"),
    ".parquet": lambda rows: parquet(pa.Table.from_pylist(rows)),
    ".arrow": lambda rows: arrow(pa.Table.from_pylist(rows)),
}
COLUMNAR = (".parquet", ".arrow")


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def rows_of(path: Path) -> list[Any]:
    return [row.reason.name if isinstance(row, Rejected) else row for _, row in read_rows(path)]


def lines_of(path: Path) -> list[int]:
    return [source.line for source, _ in read_rows(path)]


def test_every_kind_is_written_here_or_is_a_document() -> None:
    documents = {suffix for suffix, content in CONTENTS.items() if content in ("text", "code")}
    assert set(WRITERS) | documents == set(CONTENTS)
    assert set(CONTENTS.values()) | {"tree"} == set(READERS)


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize("suffix", WRITERS)
def test_rows_come_back_as_they_were(tmp_path: Path, suffix: str, compression: str) -> None:
    if suffix in COLUMNAR and compression:
        assert find_kind(f"a{suffix}{compression}") is None
        return
    path = write(tmp_path / f"A.x{suffix.upper()}{compression}", COMPRESS[compression](WRITERS[suffix](ROWS)))
    told: list[int] = []
    found = list(read_rows(path, on_bytes=told.append))
    assert [row for _, row in found] == ROWS
    assert {source.file for source, _ in found} == {str(path)}
    numbers = [source.line for source, _ in found]
    assert numbers == sorted(set(numbers))
    assert told == sorted(told)
    assert told[-1] == path.stat().st_size


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize("suffix", [".txt", ".md"])
def test_a_text_file_is_one_row_to_the_byte(tmp_path: Path, suffix: str, compression: str) -> None:
    path = write(tmp_path / f"a{suffix}{compression}", COMPRESS[compression](TEXT.encode()))
    assert rows_of(path) == [{"text": TEXT}]


def test_a_source_file_brings_its_path(tmp_path: Path) -> None:
    path = write(tmp_path / "a.py", b"x = 1\n")
    assert rows_of(path) == [{"text": "x = 1\n", "path": str(path)}]
    assert ".py" in CODE_SUFFIXES


@pytest.mark.parametrize("suffix", [".txt", ".py"])
def test_a_document_that_is_not_utf_8_is_rejected(tmp_path: Path, suffix: str) -> None:
    ((source, row),) = read_rows(write(tmp_path / f"a{suffix}", b"abc\xff"))
    assert isinstance(row, Rejected)
    assert (source.line, row.reason, row.detail) == (1, DropReason.DAMAGED_ROW, "not UTF-8 at byte 3")


@pytest.mark.parametrize("compression", [".gz", ".zst", ".xz"])
@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".txt"])
def test_a_cut_or_changed_compressed_file_is_an_error(tmp_path: Path, suffix: str, compression: str) -> None:
    noise = [{"text": random.Random(number).randbytes(500).hex()} for number in range(200)]
    data = WRITERS.get(suffix, json_lines)(noise)
    whole = COMPRESS[compression](data) if compression != ".zst" else checked_zstd(data)
    for cut in (len(whole) - 1, len(whole) // 2, 7):
        path = write(tmp_path / f"cut{suffix}{compression}", whole[:cut])
        with pytest.raises(DataError, match="truncated") as caught:
            rows_of(path)
        assert caught.value.where == str(path)
        assert caught.value.next_step
    bad = bytearray(whole)
    bad[len(bad) // 2] ^= 0x55
    with pytest.raises(DataError, match=r"damaged|Corrupt|not valid"):
        rows_of(write(tmp_path / f"bad{suffix}{compression}", bytes(bad)))


def checked_zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def test_every_stream_of_an_xz_file_is_read_and_its_end_is_known(tmp_path: Path) -> None:
    one, two = lzma.compress(b'{"a": 1}\n'), lzma.compress(b'{"a": 2}\n')
    path = write(tmp_path / "a.jsonl.xz", one + b"\0" * 8 + two + b"\0" * 4)
    assert rows_of(path) == [{"a": 1}, {"a": 2}]
    for size in range(len(one) + 9, len(one) + 8 + len(two)):
        with pytest.raises(DataError, match=f"truncated: it ends at byte {size} "):
            rows_of(write(path, (one + b"\0" * 8 + two)[:size]))
    with pytest.raises(DataError, match="damaged xz data"):
        rows_of(write(path, one + b"no xz stream at all"))
    assert rows_of(write(path, b"")) == []


def test_an_xz_bomb_is_read_in_little_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl.xz", lzma.compress((b'{"a": "' + b"b" * 5000 + b'"}\n') * 8000, preset=0))
    tracemalloc.start()
    count = sum(1 for _ in read_rows(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 8000
    assert peak < 4_000_000


# JSON


def test_a_mark_at_the_start_is_no_part_of_the_first_row(tmp_path: Path) -> None:
    assert rows_of(write(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"a": 1}\n{"a": 2}')) == [{"a": 1}, {"a": 2}]
    assert rows_of(write(tmp_path / "a.json", b'\xef\xbb\xbf[{"a": 1}]')) == [{"a": 1}]
    assert rows_of(write(tmp_path / "a.csv", b"\xef\xbb\xbfa,b\r\n1,2\r\n")) == [{"a": "1", "b": "2"}]


def test_values_over_many_lines_are_rows(tmp_path: Path) -> None:
    values = [{"a": {"b": [1, 2]}}, {"c": "}"}]
    text = "\n".join(json.dumps(value, indent=2) for value in values)
    path = write(tmp_path / "a.json", text.encode())
    assert rows_of(path) == values
    assert lines_of(path) == [1, 9]
    with pytest.raises(DataError, match="not valid JSON") as caught:
        rows_of(write(path, text[:-3].encode()))
    assert caught.value.where.startswith(f"{path}:")
    assert rows_of(write(path, json.dumps(values[0]).encode())) == [values[0]]


def test_one_bad_line_in_a_json_file_of_lines_costs_one_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", b'{"a": 1}\n{"b"\n\n[3]\n')
    assert rows_of(path) == [{"a": 1}, "NOT_JSON", "BLANK_LINE", [3]]


def test_a_huge_line_is_one_row(tmp_path: Path) -> None:
    rows = [{"text": "x" * 3_000_000}, {"text": "y"}]
    for suffix in (".jsonl", ".csv", ".json"):
        assert rows_of(write(tmp_path / f"a{suffix}", WRITERS[suffix](rows))) == rows


def test_nesting_beyond_reason_is_refused_and_not_a_crash(tmp_path: Path) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    assert rows_of(write(tmp_path / "a.jsonl", b'{"a": ' + deep + b'}\n{"a": 1}\n')) == ["NOT_JSON", {"a": 1}]
    with pytest.raises(DataError, match="nested too deeply"):
        rows_of(write(tmp_path / "a.json", b"[" + deep + b"]"))


# CSV


def test_a_ragged_row_is_rejected_with_its_reason_and_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b'a,b\n1,2\n"x\ny",3,4\n\n5\n"6 ""q""\r\n",\n')
    found = list(read_rows(path))
    assert rows_of(path) == [
        {"a": "1", "b": "2"}, "DAMAGED_ROW", "BLANK_LINE", "DAMAGED_ROW", {"a": '6 "q"\r\n', "b": ""},
    ]  # fmt: skip
    assert lines_of(path) == [2, 3, 5, 6, 7]
    details = [row.detail for _, row in found if isinstance(row, Rejected) and row.detail]
    assert details == ["3 cells, the header has 2 cells", "1 cell, the header has 2 cells"]


def test_a_bad_byte_costs_its_row(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b"a,b\n1,2\n\xff,4\n5,6\n")
    assert rows_of(path) == [{"a": "1", "b": "2"}, "DAMAGED_ROW", {"a": "5", "b": "6"}]
    bad = [row for _, row in read_rows(path) if isinstance(row, Rejected)]
    assert bad[0].detail == "not UTF-8 at byte 8"


def test_a_quote_that_never_closes_swallows_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b'a,b\n1,2\n"3,4\n5,6\n')
    with pytest.raises(DataError, match="never closed") as caught:
        rows_of(path)
    assert caught.value.where == f"{path}:3"
    assert rows_of(write(path, b'a,b\n"x"y,2\n3,4\n')) == ["DAMAGED_ROW", {"a": "3", "b": "4"}]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a,a\n1,2\n", "'a' stand there twice"),
        (b"\n1,2\n", "first line is blank"),
        ("a,b\n".encode("utf-16"), "UTF-16"),
        (b"a,\xff\n", "header is not UTF-8 at byte 2"),
        (b'a,"b\n', "header cannot be read"),
    ],
)
def test_a_useless_header_is_an_error(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        rows_of(write(tmp_path / "a.csv", data))
    assert caught.value.next_step


def test_an_index_of_pandas_and_other_separators_are_read(tmp_path: Path) -> None:
    assert rows_of(write(tmp_path / "a.csv", b",a\n0,x\n")) == [{"": "0", "a": "x"}]
    assert rows_of(write(tmp_path / "b.csv", b"a;b\n1,5;2\n")) == [{"a": "1,5", "b": "2"}]
    assert rows_of(write(tmp_path / "c.csv", b"a\tb\n1\t2\n")) == [{"a": "1", "b": "2"}]
    assert rows_of(write(tmp_path / "d.csv", b"")) == []


def test_csv_streams(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.csv.gz", gzip.compress(b"a,b\n" + (b"some words," + b"and more " * 500 + b"\n") * 8000, 1)
    )
    tracemalloc.start()
    count = sum(1 for _ in read_rows(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 8000
    assert peak < 4_000_000


# Parquet and Arrow


def nested() -> tuple[pa.Table, list[Any]]:
    """A table with every sort of value, and what JSON makes of it."""
    message = pa.struct([("role", pa.string()), ("content", pa.string()), ("calls", pa.list_(pa.int8()))])
    columns: dict[str, tuple[Any, list[Any], list[Any]]] = {
        "messages": (
            pa.list_(message),
            [[{"role": "user", "content": "hi", "calls": None}, {"role": "x", "content": None, "calls": [1]}], []],
            [[{"role": "user", "content": "hi"}, {"role": "x", "calls": [1]}], []],
        ),
        "none": (pa.null(), [None, None], [None, None]),
        "flag": (pa.bool_(), [True, None], [True, None]),
        "number": (pa.uint64(), [2**64 - 1, 0], [2**64 - 1, 0]),
        "score": (pa.float64(), [0.1, float("nan")], [0.1, None]),
        "day": (pa.date32(), [date(2024, 2, 29), None], ["2024-02-29", None]),
        "clock": (pa.time64("us"), [time(1, 2, 3), None], ["01:02:03", None]),
        "moment": (
            pa.timestamp("ns", "UTC"),
            [datetime(2024, 1, 2, 3, 4, 5, 600, tzinfo=UTC), None],
            ["2024-01-02T03:04:05.000600+00:00", None],
        ),
        "span": (pa.duration("ms"), [timedelta(seconds=1.5), None], [1.5, None]),
        "price": (pa.decimal128(30, 20), [Decimal("1.5"), Decimal("0.12345678901234567891")], [1.5, "0.12345678901234567891"]),
        "count": (pa.decimal128(5, 2), [Decimal("3.00"), None], [3, None]),
        "raw": (pa.binary(), ["é".encode(), None], ["é", None]),
        "view": (pa.string(), ["x", "y"], ["x", "y"]),
        "map": (pa.map_(pa.string(), pa.int32()), [[("a", 1), ("b", None)], []], [{"a": 1, "b": None}, []]),
        "pairs": (pa.map_(pa.int32(), pa.string()), [[(1, "x")], None], [[[1, "x"]], None]),
        "lists": (pa.list_(pa.list_(pa.float32(), 2)), [[[0.5, 1.0]], None], [[[0.5, 1.0]], None]),
        "word": (pa.dictionary(pa.int8(), pa.string()), ["big", "big"], ["big", "big"]),
    }  # fmt: skip
    table = pa.table({name: pa.array(values, kind) for name, (kind, values, _) in columns.items()})
    expected = [{name: plain[row] for name, (_, _, plain) in columns.items()} for row in range(2)]
    return table, expected


@pytest.mark.parametrize("suffix", COLUMNAR)
def test_nested_and_foreign_values_become_what_json_holds(tmp_path: Path, suffix: str) -> None:
    table, expected = nested()
    data = parquet(table) if suffix == ".parquet" else arrow(table)
    found = rows_of(write(tmp_path / f"a{suffix}", data))
    assert found == expected
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_a_value_that_json_cannot_hold_costs_its_row_and_names_the_field(tmp_path: Path) -> None:
    bad_text = pa.StringArray.from_buffers(
        3, pa.py_buffer(pa.array([0, 1, 2, 3], pa.int32()).buffers()[1]), pa.py_buffer(b"a\xffb")
    )
    cases = {
        "field 'image.bytes': 2 bytes that are no UTF-8 text": pa.array(
            [{"bytes": b"x"}, {"bytes": b"\xff\xd8"}, None]
        ),
        "field 'v.1': inf is no number of JSON": pa.array([[1.0], [0.0, float("inf")], None]),
        "a text is not UTF-8": bad_text,
    }
    for number, (detail, column) in enumerate(cases.items()):
        name = "image" if "image" in detail else "v"
        path = write(tmp_path / f"{number}.arrow", arrow(pa.table({name: column})))
        found = list(read_rows(path))
        assert [isinstance(row, Rejected) for _, row in found] == [False, True, False]
        assert detail in found[1][1].detail
        assert found[1][0].line == 2


@pytest.mark.parametrize("rows", [0, 1, 3000])
def test_all_batches_and_row_groups_are_read_in_order(tmp_path: Path, rows: int) -> None:
    table = pa.table({"n": pa.array(range(rows), pa.int64())})
    for data, suffix in (
        (parquet(table, row_group_size=700), ".parquet"),
        (arrow(table, batch_rows=700), ".arrow"),
        (arrow(table, batch_rows=700, stream=False), ".arrow"),
    ):
        path = write(tmp_path / f"a{suffix}", data)
        found = list(read_rows(path))
        assert [row["n"] for _, row in found] == list(range(rows))
        assert [source.line for source, _ in found] == list(range(1, rows + 1))


def test_files_of_the_datasets_library_are_read(tmp_path: Path) -> None:
    from datasets import Dataset

    rows = [{"messages": [{"role": "user", "content": f"question {number}"}]} for number in range(30)]
    Dataset.from_list(rows).save_to_disk(str(tmp_path / "set"), num_shards=2)
    files = sorted((tmp_path / "set").glob("*.arrow"))
    assert len(files) == 2
    assert [row for file in files for row in rows_of(file)] == rows
    Dataset.from_list(rows).to_parquet(str(tmp_path / "a.parquet"))
    assert rows_of(tmp_path / "a.parquet") == rows


def test_a_truncated_or_foreign_columnar_file_is_an_error(tmp_path: Path) -> None:
    table = pa.table({"t": [uuid.UUID(int=number).hex for number in range(5000)]})
    wholes = {
        "a.parquet": parquet(table, row_group_size=1000),
        "stream.arrow": arrow(table),
        "file.arrow": arrow(table, stream=False),
    }
    for name, whole in wholes.items():
        for data in (whole[:-1], whole[: len(whole) // 2], whole[:10], b'{"text": "x"}\n' * 3):
            path = write(tmp_path / name, data)
            with pytest.raises(DataError, match=r"truncated or damaged after row 0 \(") as caught:
                rows_of(path)
            assert caught.value.where == str(path)
            assert f"{len(data)} bytes" in caught.value.what
    path = write(tmp_path / "cut.arrow", wholes["stream.arrow"][:-8])
    with pytest.raises(DataError, match="no end-of-stream mark"):
        rows_of(path)


def test_a_changed_page_is_an_error_that_names_the_row(tmp_path: Path) -> None:
    table = pa.table({"t": [uuid.UUID(int=number).hex for number in range(5000)]})
    whole = bytearray(
        parquet(table, row_group_size=1000, write_page_checksum=True, use_dictionary=False, compression="NONE")
    )
    whole[len(whole) // 2] ^= 0xFF
    with pytest.raises(DataError, match=r"damaged after row [12]\d\d\d \("):
        rows_of(write(tmp_path / "a.parquet", bytes(whole)))


def test_parquet_is_read_in_little_memory(tmp_path: Path) -> None:
    table = pa.table({"t": ["word " * 200] * 60_000})
    path = write(tmp_path / "a.parquet", parquet(table, use_dictionary=False))
    del table
    before = pa.total_allocated_bytes()
    peak = 0
    for number, _ in enumerate(read_rows(path)):
        if number % 1000 == 0:
            peak = max(peak, pa.total_allocated_bytes() - before)
    assert number == 59_999
    assert peak < 30_000_000
