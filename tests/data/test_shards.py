"""Shards give back the rows that were written, any one of them at once, or say what is damaged."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.data.samples import assert_rows_equal, make_samples

from cairn.data.manifest import ChunkSummary, Manifest
from cairn.data.packing import pack
from cairn.data.rows import Row
from cairn.data.shards import ROWS_PER_BATCH, ShardWriter, TokenShards
from cairn.errors import DataError

pytestmark = pytest.mark.unit


def rows_of(count: int, *, seed: int, weighted: bool = False) -> list[Row]:
    lengths = np.random.default_rng(seed).integers(20, 33, count).tolist()
    return list(pack(make_samples(lengths, seed=seed, weighted=weighted), 32))


def write_folder(folder: Path, *shards: list[Row]) -> TokenShards:
    summaries = []
    for index, rows in enumerate(shards):
        name = f"00000-{index:06d}.arrow"
        if rows:
            with ShardWriter(folder / name) as writer:
                for row in rows:
                    writer.write(row)
        size = (folder / name).stat().st_size if rows else 0
        tokens = sum(len(row) for row in rows)
        summaries.append(
            ChunkSummary(
                name, size, len(rows), 5, 4, len(rows), tokens, tokens, {"Github": 7}, {"empty text": 1}, {}, {}
            )
        )
    manifest = Manifest.of(summaries, fingerprint="f" * 16, settings={}, sequence_length=32)
    manifest.write(folder)
    return TokenShards.open(folder)


def test_rows_come_back_bit_for_bit(tmp_path: Path) -> None:
    first = rows_of(2 * ROWS_PER_BATCH + 3, seed=1)
    second, third = rows_of(5, seed=2, weighted=True), rows_of(1, seed=3)
    shards = write_folder(tmp_path, first, second, [], third)
    assert len(shards) == len(first) + len(second) + len(third)
    for index, row in enumerate([*first, *second, *third]):
        assert_rows_equal(shards[index], row)
    for outside in (-1, len(shards)):
        with pytest.raises(IndexError):
            shards[outside]


def test_a_row_is_reached_without_reading_the_others(tmp_path: Path) -> None:
    shards = write_folder(tmp_path, rows_of(6 * ROWS_PER_BATCH, seed=1), rows_of(3, seed=2))
    before = pa.total_allocated_bytes()
    last = shards[len(shards) - 4]
    assert len(last) > 0
    assert len(shards._readers) == 1
    assert pa.total_allocated_bytes() - before < 100_000


def test_shards_travel_by_pickle(tmp_path: Path) -> None:
    shards = write_folder(tmp_path, rows_of(3, seed=1))
    assert_rows_equal(pickle.loads(pickle.dumps(shards))[1], shards[1])


def test_weights_of_one_take_no_space(tmp_path: Path) -> None:
    write_folder(tmp_path, rows_of(400, seed=1), rows_of(400, seed=1, weighted=True))
    plain, weighted = ((tmp_path / f"00000-00000{i}.arrow").stat().st_size for i in (0, 1))
    assert plain < 0.65 * weighted


def test_an_interrupted_shard_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with ShardWriter(tmp_path / "a.arrow") as writer:
            writer.write(rows_of(1, seed=1)[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_the_manifest_adds_up_and_is_needed(tmp_path: Path) -> None:
    rows = rows_of(3, seed=1)
    shards = write_folder(tmp_path, rows, [])
    manifest = shards.manifest
    assert (manifest.records, manifest.documents, manifest.rows) == (10, 8, len(rows))
    assert manifest.drops == {"empty text": 2}
    assert manifest.bytes_per_subset == {"Github": 14}
    assert manifest.fill == pytest.approx(sum(len(row) for row in rows) / (32 * len(rows)))
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(DataError, match="no finished token shards"):
        TokenShards.open(tmp_path)


def test_a_missing_or_short_shard_is_named(tmp_path: Path) -> None:
    write_folder(tmp_path, rows_of(3, seed=1))
    path = tmp_path / "00000-000000.arrow"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(DataError, match="the manifest says") as caught:
        TokenShards.open(tmp_path)
    assert caught.value.where == str(path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(DataError, match="manifest is damaged"):
        TokenShards.open(tmp_path)
