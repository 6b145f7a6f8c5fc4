"""A live stream: the prepared rows in the order that it promises, whoever takes them, however often it is stopped."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import zstandard

from cairn.config.load import build, with_overrides
from cairn.config.recipe import Recipe
from cairn.data import chunks, producer
from cairn.data.cursor import Cursor, share
from cairn.data.feed import Feed, open_feed
from cairn.data.manifest import Manifest
from cairn.data.pipeline import STREAM, prepare_local, provided, provided_local
from cairn.data.rows import Row
from cairn.data.shards import TokenShards
from cairn.data.spool import Spool
from cairn.errors import DataError, RecipeError, UserError

START = Cursor(seed=3)


@pytest.fixture(autouse=True)
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of ten records, two chunks ahead; not on a cluster, whose processes know nothing of it."""
    if request.node.get_closest_marker("ray"):
        return
    monkeypatch.setattr(chunks, "CHUNK_RECORDS", 10)
    monkeypatch.setattr(producer, "LEAD_CHUNKS", 2)
    monkeypatch.setattr(producer, "PAUSE_S", 0.002)


def documents(path: Path, count: int, word: str = "document") -> Path:
    lines = [{"text": f"{word} {i} " * (i % 4 + 1), "meta": {"pile_set_name": "Github"}} for i in range(count)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def recipe_of(folder: Path, model: Path, train: list[Any], **data: Any) -> Recipe:
    values = {
        "model": {"path": str(model)},
        "data": {"train": train, "sequence_length": 64, "streaming": True, **data},
        "stage": "pretrain",
        "training": {"steps": 10},
        "storage": {"path": str(folder / "storage"), "run": "run"},
    }
    return build(values)


@contextmanager
def streamed(recipe: Recipe, *, leads: bool = True) -> Iterator[Feed]:
    """The feed of one worker, while the stream is being encoded."""
    with provided_local(recipe) as data:
        yield open_feed(recipe.data, data.train, leads=leads)


def taken(feed: Feed, cursor: Cursor, counts: list[int]) -> tuple[list[Row], Cursor]:
    """The rows of some steps, each released when it is over."""
    rows: list[Row] = []
    for count in counts:
        numbers, cursor = feed.take(cursor, count)
        rows += [feed[number] for number in numbers]
        feed.release(cursor)
    return rows, cursor


def sources(rows: list[Row]) -> list[tuple[str, ...]]:
    return [row.sources for row in rows]


def chunks_in(recipe: Recipe) -> int:
    return len(list((recipe.run_path / STREAM).glob("round_*/*.arrow")))


def same(one: Row, other: Row) -> bool:
    names = ("tokens", "labels", "weights", "segments", "positions", "source_bytes")
    return one.sources == other.sources and all(np.array_equal(getattr(one, n), getattr(other, n)) for n in names)


@pytest.mark.slow
def test_without_shuffling_it_is_the_prepared_rows_in_their_order(tmp_path: Path, tiny_path: Path) -> None:
    files = [str(documents(tmp_path / f"{i}.jsonl", count)) for i, count in enumerate((45, 3, 20))]
    recipe = recipe_of(tmp_path, tiny_path, files, shuffle_rows=0, arrangement="concatenated")
    shards = TokenShards.open(prepare_local(with_overrides(recipe, {"data.streaming": False})).train)
    with streamed(recipe) as feed:
        rows, cursor = taken(feed, START, [7] * (len(shards) // 7) + [len(shards) % 7])
        again, _ = taken(feed, cursor, [5])
    assert len(rows) == len(shards) > 30
    assert all(same(row, shards[i]) for i, row in enumerate(rows))
    assert all(same(row, shards[i]) for i, row in enumerate(again)), "the next epoch begins anew"
    manifest = Manifest.read(recipe.run_path / STREAM)
    assert (manifest.rows, manifest.documents, manifest.files) == (len(shards), 68, shards.manifest.files)


@pytest.mark.slow
def test_rows_are_shuffled_in_windows_that_grow_and_each_comes_once_an_epoch(tmp_path: Path, tiny_path: Path) -> None:
    recipe = recipe_of(tmp_path, tiny_path, [str(documents(tmp_path / "a.jsonl", 200))], shuffle_rows=40)
    count = len(TokenShards.open(prepare_local(with_overrides(recipe, {"data.streaming": False})).train))
    with streamed(recipe) as feed:
        rows, cursor = taken(feed, START, [8] * (count // 8) + [count % 8])
        other, after = taken(feed, cursor, [count])
    assert (cursor.epoch, cursor.row, after.epoch) == (0, count, 1)
    first, second = sources(rows), sources(other)
    assert sorted(first) == sorted(second)
    assert len(set(first)) == count
    assert first != second
    lines = [int(source[0].rpartition(":")[2]) for source in first]
    assert max(lines[:5]) <= 10, "the first window is the first chunk"
    assert lines[:5] != sorted(lines[:5])
    assert max(lines[: count // 4]) > 20, "later ones hold several"


@pytest.mark.slow
@pytest.mark.parametrize("shuffle_rows", [0, 25])
def test_it_goes_on_where_it_was_stopped(tmp_path: Path, tiny_path: Path, shuffle_rows: int) -> None:
    """Stopped anywhere and taken up with fewer rows taken than were released: the same rows, no chunk encoded twice."""
    train = [str(documents(tmp_path / "a.jsonl", 150)), str(documents(tmp_path / "b.jsonl", 90, "other"))]
    straight = recipe_of(tmp_path / "straight", tiny_path, train, shuffle_rows=shuffle_rows)
    with streamed(straight) as feed:
        wanted, _ = taken(feed, START, [6] * 30)
    stopped = recipe_of(tmp_path / "stopped", tiny_path, train, shuffle_rows=shuffle_rows)
    rows: list[Row] = []
    cursor = START
    for steps in (1, 4, 10, 15):
        with streamed(stopped) as feed:
            feed.release(cursor)
            some, cursor = taken(feed, cursor, [6] * steps)
            feed.take(cursor, 12)  # steps behind the newest checkpoint, which are done again
        rows += some
    assert sources(rows) == sources(wanted)
    assert all(same(one, other) for one, other in zip(rows, wanted, strict=True))


@pytest.mark.slow
def test_nothing_behind_the_journal_is_encoded_again(
    tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[str] = []
    write = chunks.write_chunk

    def noted(chunk: Any, *args: Any) -> Any:
        encoded.append(chunk.name)
        return write(chunk, *args)

    monkeypatch.setattr("cairn.data.building.write_chunk", noted)
    recipe = recipe_of(tmp_path, tiny_path, [str(documents(tmp_path / "a.jsonl", 200))], shuffle_rows=0)
    with streamed(recipe) as feed:
        _, cursor = taken(feed, START, [6] * 5)
    with streamed(recipe) as feed:
        feed.release(cursor)
        taken(feed, cursor, [6] * 6)
    assert len(encoded) > 10
    assert len(set(encoded)) == len(encoded)


@pytest.mark.slow
def test_an_old_checkpoint_gets_its_chunks_back(tmp_path: Path, tiny_path: Path) -> None:
    """The chunks behind the newest checkpoint are gone; whoever begins before it waits until they are there again."""
    recipe = recipe_of(tmp_path, tiny_path, [str(documents(tmp_path / "a.jsonl", 200))], shuffle_rows=10)
    with streamed(recipe) as feed:
        wanted, _ = taken(feed, START, [6] * 12)
    with streamed(recipe) as feed:
        rows, cursor = taken(feed, START, [6] * 6)
        again = open_feed(recipe.data, recipe.run_path / STREAM, leads=True)
        assert sources(taken(again, START, [6] * 2)[0]) == sources(rows[:12])
        rest, _ = taken(again, cursor, [6] * 6)
    assert sources(rows + rest) == sources(wanted)


@pytest.mark.slow
def test_a_gap_in_the_spool_is_filled(tmp_path: Path, tiny_path: Path) -> None:
    """As after a producer that was killed while it encoded chunks again."""
    recipe = recipe_of(tmp_path, tiny_path, [str(documents(tmp_path / "a.jsonl", 200))], shuffle_rows=10)
    with streamed(recipe) as feed:
        wanted, _ = taken(feed, START, [6] * 8)
        spool = Spool(recipe.run_path / STREAM)
        first = next(entry for entry, _ in spool.entries() if entry.rows)
    with streamed(recipe) as feed:
        again, _ = taken(feed, START, [6])
    (spool.folder / first.path).write_bytes(b"left over")
    (spool.folder / "round_00000" / ".draft").write_bytes(b"")
    with streamed(recipe) as feed:
        rows, _ = taken(feed, START, [6] * 8)
    assert sources(rows) == sources(wanted)
    assert sources(again) == sources(wanted[:6])
    assert not list(spool.folder.glob("round_*/.*"))


@pytest.mark.slow
@pytest.mark.parametrize("shuffle_rows", [0, 30])
def test_the_disk_holds_a_lead_and_no_more(tmp_path: Path, tiny_path: Path, shuffle_rows: int) -> None:
    recipe = recipe_of(tmp_path, tiny_path, [str(documents(tmp_path / "a.jsonl", 600))], shuffle_rows=shuffle_rows)
    per_chunk, cursor, most = 5, START, 0
    with streamed(recipe) as feed:
        for _ in range(45):
            numbers, cursor = feed.take(cursor, 6)
            assert all(len(feed[number]) for number in numbers)
            feed.release(cursor)
            time.sleep(0.01)
            most = max(most, chunks_in(recipe))
    assert 2 <= most <= 2 + 1 + (3 * shuffle_rows) // per_chunk + 3
    assert most < 30
    assert chunks_in(recipe) < 30


@pytest.mark.slow
def test_a_finished_run_leaves_the_counts_alone(tmp_path: Path, tiny_path: Path) -> None:
    recipe = recipe_of(tmp_path, tiny_path, [str(documents(tmp_path / "a.jsonl", 60))])
    with streamed(recipe) as feed:
        taken(feed, START, [20])
        feed.close()
    assert [path.name for path in (recipe.run_path / STREAM).iterdir()] == ["manifest.json"]


@pytest.mark.slow
def test_two_workers_take_the_same_batches_as_one(tmp_path: Path, tiny_path: Path) -> None:
    train = [str(documents(tmp_path / "a.jsonl", 120)), str(documents(tmp_path / "b.jsonl", 60, "other"))]
    recipe = recipe_of(tmp_path, tiny_path, train, shuffle_rows=20)
    with streamed(recipe) as feed:
        alone, _ = taken(feed, START, [8] * 10)
        other = open_feed(recipe.data, recipe.run_path / STREAM, leads=False)
    recipe = recipe_of(tmp_path / "two", tiny_path, train, shuffle_rows=20)
    together: list[Row] = []
    with streamed(recipe) as feed:
        other = open_feed(recipe.data, recipe.run_path / STREAM, leads=False)
        cursor = START
        for _ in range(10):
            parts = []
            for rank, worker in enumerate((feed, other)):
                numbers, after = worker.take(cursor, 8)
                parts.append([worker[number] for number in share(numbers, rank=rank, world_size=2)])
            cursor = after
            together += [row for pair in zip(*parts, strict=True) for row in pair]
            for worker in (feed, other):
                worker.release(cursor)
    assert sources(together) == sources(alone)


@pytest.mark.slow
def test_weights_are_shares_of_the_rows_and_the_stream_has_no_end(tmp_path: Path, tiny_path: Path) -> None:
    train = [
        {"path": str(documents(tmp_path / "large.jsonl", 300, "large")), "weight": 3.0},
        {"path": str(documents(tmp_path / "small.jsonl", 30, "small")), "weight": 1.0},
    ]
    recipe = recipe_of(tmp_path, tiny_path, train, shuffle_rows=30)
    with streamed(recipe) as feed:
        rows, cursor = taken(feed, START, [10] * 30)
    small = sum("small.jsonl" in row.sources[0] for row in rows)
    assert 0.2 < small / len(rows) < 0.3
    assert cursor.epoch == 0
    assert len(set(sources(rows))) < len(rows), "the small one came round"


@pytest.mark.slow
def test_without_weights_datasets_take_turns_and_end_together(tmp_path: Path, tiny_path: Path) -> None:
    train = [str(documents(tmp_path / "a.jsonl", 200, "word")), str(documents(tmp_path / "b.jsonl", 100, "word"))]
    with streamed(recipe_of(tmp_path, tiny_path, train, shuffle_rows=0)) as feed:
        rows, _ = taken(feed, START, [60])
    of_b = [("b.jsonl" in row.sources[0]) for row in rows]
    assert 0.2 < sum(of_b) / 60 < 0.5
    assert sum(of_b[:30]) > 5 < sum(of_b[30:])


@pytest.mark.slow
def test_a_stream_from_another_file_system_is_the_same(tmp_path: Path, tiny_path: Path) -> None:
    path = documents(tmp_path / "a.jsonl", 60)
    memory = fsspec.filesystem("memory")
    memory.pipe("/stream/a.jsonl", path.read_bytes())
    with streamed(recipe_of(tmp_path, tiny_path, [str(path)])) as feed:
        local, _ = taken(feed, START, [20])
    with streamed(recipe_of(tmp_path / "remote", tiny_path, ["memory://stream/a.jsonl"])) as feed:
        remote, _ = taken(feed, START, [20])
    memory.rm("/stream", recursive=True)
    assert [row.tokens.tolist() for row in remote] == [row.tokens.tolist() for row in local]


def stops(recipe: Recipe) -> UserError:
    with streamed(recipe) as feed, pytest.raises(UserError) as caught:
        taken(feed, START, [5] * 100)
    return caught.value


@pytest.mark.slow
def test_bad_data_stops_it_with_the_words_of_preparing(tmp_path: Path, tiny_path: Path) -> None:
    bad = documents(tmp_path / "bad.jsonl", 20)
    bad.write_text(bad.read_text() + "{broken\n" * 3)
    none = documents(tmp_path / "none.jsonl", 20)
    cases = {
        "3 of 23 records are unusable": recipe_of(tmp_path / "1", tiny_path, [str(bad)]),
        "nothing to train on in 20 records": recipe_of(tmp_path / "2", tiny_path, [str(none)], subsets=["Books3"]),
    }
    for message, recipe in cases.items():
        with pytest.raises(DataError, match=message) as prepared:
            prepare_local(with_overrides(recipe, {"data.streaming": False}))
        error = stops(recipe)
        assert type(error) is DataError
        assert (error.what, error.where) == (prepared.value.what, prepared.value.where)
        assert error.next_step == prepared.value.next_step
    truncated = tmp_path / "cut.jsonl.zst"
    noise = [{"text": f"document {i}", "noise": random.Random(i).randbytes(2000).hex()} for i in range(100)]
    truncated.write_bytes(zstandard.compress("\n".join(map(json.dumps, noise)).encode())[:-20])
    assert "the file is truncated" in stops(recipe_of(tmp_path / "4", tiny_path, [str(truncated)], format="text")).what
    with (
        pytest.raises(DataError, match="there is no such file"),
        streamed(recipe_of(tmp_path / "3", tiny_path, [str(tmp_path / "gone.jsonl")])),
    ):
        pass


@pytest.mark.slow
def test_a_weighted_dataset_without_rows_is_told(tmp_path: Path, tiny_path: Path) -> None:
    train = [
        {"path": str(documents(tmp_path / "a.jsonl", 30)), "weight": 1.0},
        {"path": str(documents(tmp_path / "b.jsonl", 30)), "weight": 1.0},
    ]
    text = (tmp_path / "b.jsonl").read_text().replace("Github", "ArXiv")
    (tmp_path / "b.jsonl").write_text(text)
    error = stops(recipe_of(tmp_path, tiny_path, train, subsets=["Github"]))
    assert error.what == "a weighted dataset has no rows"
    assert error.where == "data.train.1"


@pytest.mark.slow
def test_changed_data_is_refused_and_a_torn_line_is_not(tmp_path: Path, tiny_path: Path) -> None:
    path = documents(tmp_path / "a.jsonl", 100)
    recipe = recipe_of(tmp_path, tiny_path, [str(path)], shuffle_rows=0)
    with streamed(recipe) as feed:
        wanted, _ = taken(feed, START, [4] * 4)
    with streamed(recipe) as feed:
        rows, cursor = taken(feed, START, [4] * 2)
    journal = recipe.run_path / STREAM / "journal.jsonl"
    with journal.open("ab") as stream:
        stream.write(b'{"turn":0,"chu')
    with streamed(recipe) as feed:
        feed.release(cursor)
        rest, cursor = taken(feed, cursor, [4] * 2)
    assert sources(rows + rest) == sources(wanted)
    documents(path, 101)
    with streamed(recipe) as feed, pytest.raises(UserError, match="the data changed"):
        feed.take(cursor, 4)


@pytest.mark.slow
def test_a_chunk_of_another_size_is_named(tmp_path: Path, tiny_path: Path) -> None:
    recipe = recipe_of(tmp_path, tiny_path, [str(documents(tmp_path / "a.jsonl", 100))])
    with streamed(recipe) as feed:
        feed.take(START, 3)
    spool = Spool(recipe.run_path / STREAM)
    for path in spool.folder.glob("round_*/*.arrow"):
        path.write_bytes(path.read_bytes()[:-8])
    with streamed(recipe) as feed, pytest.raises(DataError, match="the journal says"):
        feed.take(START, 3)


@pytest.mark.slow
def test_what_a_recipe_of_a_stream_must_say(tmp_path: Path, tiny_path: Path) -> None:
    values = {"model": {"path": str(tiny_path)}, "stage": "pretrain", "data": {"train": ["a"], "streaming": True}}
    with pytest.raises(RecipeError, match=r"training\.steps[^→]*→ set how many steps to train"):
        build(values)
    ahead = {"name": "dpo", "precompute_reference": True}
    with pytest.raises(RecipeError, match=r"stage\.precompute_reference"):
        build({**values, "training": {"steps": 3}, "stage": ahead})
    weighted = {"train": [{"path": "a", "weight": 1.0}, "b"], "streaming": True, "arrangement": "concatenated"}
    with pytest.raises(RecipeError, match="2 problems") as caught:
        build({**values, "training": {"steps": 3}, "data": weighted})
    assert "a stream needs all or none" in str(caught.value)
    assert "round and round" in str(caught.value)


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_a_cluster_encodes_the_same_stream_and_its_errors_are_told(tmp_path: Path, tiny_path: Path) -> None:
    train = [str(documents(tmp_path / f"{name}.jsonl", count)) for name, count in (("a", 6000), ("b", 3000))]
    wanted, found = [], []
    for name, provide, rows in (("here", provided_local, wanted), ("there", provided, found)):
        recipe = recipe_of(tmp_path / name, tiny_path, train, shuffle_rows=500)
        with provide(recipe) as data:
            feed = open_feed(recipe.data, data.train, leads=True)
            rows += sources(taken(feed, START, [100] * 12)[0])
    assert found == wanted
    noise = "\n".join(json.dumps({"text": random.Random(i).randbytes(2000).hex()}) for i in range(100))
    (tmp_path / "cut.jsonl.zst").write_bytes(zstandard.compress(noise.encode())[:-20])
    recipe = recipe_of(tmp_path / "cut", tiny_path, [str(tmp_path / "cut.jsonl.zst")], format="text")
    with provided(recipe) as data, pytest.raises(DataError, match="the file is truncated"):
        taken(open_feed(recipe.data, data.train, leads=True), START, [100] * 100)
