"""Reading files: all frames, bounded memory, and damage named by file and byte."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest
import zstandard

from cairn.data.sources.files import resolve
from cairn.data.sources.jsonl import read_lines
from cairn.errors import DataError

pytestmark = pytest.mark.unit

TWO_FRAMES = bytes.fromhex("28b52ffd200631000068656c6c6f0a28b52ffd2006310000776f726c640a")
WINDOW_2_28 = bytes.fromhex("28b52ffd009031000068656c6c6f0a")


def texts(path: Path) -> list[bytes]:
    return [line.data for line in read_lines(path)]


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_two_frames_are_both_read(tmp_path: Path) -> None:
    lines = list(read_lines(write(tmp_path / "a.jsonl.zst", TWO_FRAMES)))
    assert [(line.number, line.offset, line.data) for line in lines] == [(1, 0, b"hello"), (2, 6, b"world")]


def test_a_skippable_frame_is_passed_over(tmp_path: Path) -> None:
    skippable = bytes.fromhex("5e2a4d18") + (5).to_bytes(4, "little") + b"12345"
    assert texts(write(tmp_path / "a.jsonl.zst", TWO_FRAMES + skippable + TWO_FRAMES)) == [b"hello", b"world"] * 2


def test_a_large_window_is_read(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "a.jsonl.zst", WINDOW_2_28)) == [b"hello"]


def test_every_truncation_of_small_frames_is_an_error_that_names_the_byte(tmp_path: Path) -> None:
    compressor = zstandard.ZstdCompressor(write_checksum=True)
    first, second = compressor.compress(b'{"text": "one"}\n' * 50), compressor.compress(b'{"text": "two"}\n' * 50)
    whole = first + second
    for size in range(1, len(whole)):
        path = write(tmp_path / "cut.jsonl.zst", whole[:size])
        if size == len(first):
            assert len(texts(path)) == 50
            continue
        with pytest.raises(DataError, match="truncated") as caught:
            texts(path)
        assert caught.value.where == str(path)
        assert f"byte {size} " in caught.value.what


@pytest.mark.parametrize("cut", [5, 20_000, 131_080, 300_000])
def test_truncation_inside_a_frame_of_many_blocks(tmp_path: Path, cut: int) -> None:
    import random

    noise = random.Random(0).randbytes(400_000)
    whole = zstandard.ZstdCompressor(level=3, write_content_size=False).compress(noise)
    with pytest.raises(DataError, match=f"byte {cut} "):
        texts(write(tmp_path / "cut.jsonl.zst", whole[:cut]))


def test_a_damaged_block_is_an_error(tmp_path: Path) -> None:
    whole = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(b'{"text": "one"}\n' * 50))
    whole[-1] ^= 0xFF
    with pytest.raises(DataError, match="damaged zstd frame between bytes 0 and"):
        texts(write(tmp_path / "bad.jsonl.zst", bytes(whole)))


def test_what_is_not_zstd_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not zstd data"):
        texts(write(tmp_path / "plain.jsonl.zst", b'{"text": "a"}\n'))


def test_one_frame_of_60_mb_is_read_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "big.jsonl.zst"
    line = json.dumps({"text": "word " * 1000}).encode() + b"\n"
    count = 60_000_000 // len(line)
    with path.open("wb") as file, zstandard.ZstdCompressor(write_content_size=False).stream_writer(file) as stream:
        for _ in range(count):
            stream.write(line)
    assert path.stat().st_size < 200_000
    tracemalloc.start()
    read = sum(1 for _ in read_lines(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert read == count
    assert peak < 4_000_000


def test_plain_and_gzip_lines_keep_their_bytes(tmp_path: Path) -> None:
    data = '{"a": "x\\r\\ny"}\r\n\n{"b": "é"}'.encode()
    expected = [b'{"a": "x\\r\\ny"}\r', b"", '{"b": "é"}'.encode()]
    assert texts(write(tmp_path / "a.jsonl", data)) == expected
    assert texts(write(tmp_path / "a.jsonl.gz", gzip.compress(data))) == expected


def test_a_truncated_gzip_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="truncated or damaged"):
        texts(write(tmp_path / "a.jsonl.gz", gzip.compress(b"x\n" * 1000)[:-6]))


def test_a_json_array_gives_its_elements_with_their_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", json.dumps([{"a": 1}, {"b": [1, 2]}, {"c": "]"}], indent=1).encode())
    lines = list(read_lines(path))
    assert [json.loads(line.data) for line in lines] == [{"a": 1}, {"b": [1, 2]}, {"c": "]"}]
    assert [line.number for line in lines] == [2, 5, 11]
    raw = path.read_bytes()
    assert all(raw[line.offset :].startswith(line.data) for line in lines)


@pytest.mark.parametrize("text", ['[{"a": 1}, {"b"', '[{"a": 1}', '[{"a": 1} {"b": 2}]', "[{,}]"])
def test_a_broken_array_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match="JSON"):
        texts(write(tmp_path / "a.json", text.encode()))


def test_json_lines_under_another_name(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "a.json", b'{"a": 1}\n{"b": 2}\n')) == [b'{"a": 1}', b'{"b": 2}']


def test_an_empty_file_gives_nothing(tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.jsonl.zst", "a.json"):
        assert texts(write(tmp_path / name, b"")) == []


def test_resolve_sorts_a_glob_and_keeps_each_file_once(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "sub/c.jsonl", "current_chunk_incomplete.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, b"")
    found = resolve([tmp_path / "b.jsonl", f"{tmp_path}/**/*.jsonl"])
    assert [path.name for path in found] == ["b.jsonl", "a.jsonl", "c.jsonl"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing.jsonl", "no such file"),
        ("*.jsonl.zst", "no file matches"),
        ("", "no data files"),
        ("a.bin", "no known suffix"),
        ("a.parquet.gz", "no known suffix"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, name: str, message: str) -> None:
    write(tmp_path / "a.bin", b"")
    write(tmp_path / "a.parquet.gz", b"")
    with pytest.raises(DataError, match=message) as caught:
        resolve([str(tmp_path / name) if name else str(tmp_path)])
    assert caught.value.next_step
    assert caught.value.exit_code == 2
