"""Preparing: counts that add up, errors before work, the same bits from Ray as from one process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import zstandard
from tests.data.recipes import data_recipe
from tests.tiny import build_tokenizer

from cairn.config.home import token_cache
from cairn.config.recipe import Recipe
from cairn.data import chunks
from cairn.data.pipeline import Prepared, prepare, prepare_local
from cairn.data.plan import make_plan
from cairn.data.shards import TokenShards
from cairn.errors import DataError, ModelError, StorageError, UserError

Lines = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def fresh_cache(cairn_home: Path) -> None:
    shutil.rmtree(token_cache(), ignore_errors=True)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_RECORDS", 10)


def pile(text: str, tag: str = "Github") -> dict[str, Any]:
    return {"text": text, "meta": {"pile_set_name": tag}}


def write_lines(path: Path, rows: list[dict[str, Any] | str]) -> Path:
    lines = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows).encode()
    path.write_bytes(zstandard.compress(lines) if path.suffix == ".zst" else lines)
    return path


def documents(path: Path, count: int = 35) -> Path:
    return write_lines(
        path, [pile(f"document {i} " * (i % 9 + 1), "ArXiv" if i % 3 else "Github") for i in range(count)]
    )


def files_of(prepared: Prepared) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in prepared.train.iterdir()}


@pytest.mark.slow
@pytest.mark.usefixtures("small_chunks")
def test_every_record_is_a_document_or_a_counted_drop(tmp_path: Path, tiny_path: Path) -> None:
    rows = [pile("good one"), "", "{broken", pile("other", "ArXiv"), pile(""), pile("good é two"), {"text": 3}]
    path = write_lines(tmp_path / "a.jsonl", [*rows, *[pile(f"more {i}") for i in range(20)]])
    recipe = data_recipe(tiny_path, path, subsets=["Github"], max_bad_fraction=0.2)
    manifest = prepare_local(recipe).manifest
    assert manifest.records == 27
    assert manifest.documents == 22
    assert manifest.drops == {
        "blank line": 1,
        "empty text": 1,
        "not valid JSON in UTF-8": 1,
        "row does not fit the format": 1,
        "subset not chosen": 1,
    }
    assert manifest.records == manifest.documents + sum(manifest.drops.values())
    text = ["good one", "good é two", *[f"more {i}" for i in range(20)]]
    assert manifest.bytes_per_subset == {"Github": sum(len(t.encode()) for t in text)}
    assert manifest.tokens == manifest.trained_tokens == sum(len(t.encode()) + 1 for t in text)
    assert f"{path}:3" in manifest.examples["not valid JSON in UTF-8"][0]


@pytest.mark.slow
@pytest.mark.usefixtures("small_chunks")
def test_no_token_of_a_document_is_lost_and_packing_only_moves_them(tmp_path: Path, tiny_path: Path) -> None:
    path = documents(tmp_path / "a.jsonl")
    seen = []
    for packing in (True, False):
        shards = TokenShards.open(prepare_local(data_recipe(tiny_path, path, packing=packing)).train)
        rows = [shards[i] for i in range(len(shards))]
        parts = {(row.sources[s - 1], tuple(row.labels[row.segments == s])) for row in rows for s in set(row.segments)}
        seen.append(parts)
        assert sum(len(row) for row in rows) == shards.manifest.tokens
        assert all(len(row) <= 64 for row in rows)
    assert seen[0] == seen[1]
    assert len(seen[0]) == shards.manifest.samples == len(shards)


@pytest.mark.slow
def test_conversations_weigh_only_answers_and_cuts_are_counted(tmp_path: Path, tiny_path: Path) -> None:
    rows: Lines = [{"instruction": "a", "output": "b" * n} for n in (1, 2, 100)]
    path = write_lines(tmp_path / "a.jsonl", [*rows, {"instruction": "a" * 100, "output": "b"}])
    dropped = prepare_local(data_recipe(tiny_path, path, stage="sft")).manifest
    assert dropped.drops == {"longer than a row": 2}
    assert dropped.trained_tokens == 5 < dropped.tokens
    cut = prepare_local(data_recipe(tiny_path, path, stage="sft", truncation="keep_start")).manifest
    assert cut.drops == {"longer than a row": 1}
    assert cut.cuts == {"end of a prompt cut": 1}
    assert cut.documents == 3
    other = write_lines(tmp_path / "b.jsonl", rows[:2])
    both = prepare_local(data_recipe(tiny_path, [path, other], stage="sft", truncation="keep_start")).manifest
    assert [(file.path, file.documents) for file in both.files] == [(str(path), 3), (str(other), 2)]
    assert [file.cuts for file in both.files] == [cut.cuts, {}]
    assert [file.drops for file in both.files] == [cut.drops, {}]


@pytest.mark.slow
@pytest.mark.usefixtures("small_chunks")
def test_the_second_time_nothing_is_read(tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = documents(tmp_path / "a.jsonl.zst")
    said: list[tuple[int, int]] = []
    first = prepare_local(data_recipe(tiny_path, path), on_progress=lambda done, total: said.append((done, total)))
    assert len(said) == 5
    assert said == sorted(said)
    assert said[-1] == (path.stat().st_size, path.stat().st_size)
    monkeypatch.setattr("cairn.data.building.read_chunks", None)
    assert prepare_local(data_recipe(tiny_path, path)).train == first.train
    moved = path.rename(tmp_path / "moved.jsonl.zst")
    assert prepare_local(data_recipe(tiny_path, moved)).train == first.train


@pytest.mark.slow
def test_the_fingerprint_sees_content_settings_and_tokenizer(tmp_path: Path, tiny_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [pile("one")])
    base = data_recipe(tiny_path, path)
    found = [prepare_local(base).train, prepare_local(data_recipe(tiny_path, path, sequence_length=32)).train]
    tokenizer = build_tokenizer()
    tokenizer.add_special_tokens({"eos_token": "<|other|>"})
    found.append(prepare_local(base, tokenizer=tokenizer).train)
    write_lines(path, [pile("two")])
    found.append(prepare_local(base).train)
    assert len(set(found)) == 4


def refusals(tmp_path: Path, tiny_path: Path) -> dict[str, tuple[Recipe, type[UserError], str]]:
    """name → recipe, error, what it says."""
    truncated = documents(tmp_path / "cut.jsonl.zst", 6000)
    truncated.write_bytes(truncated.read_bytes()[:-100])
    wrong = write_lines(tmp_path / "wrong.jsonl", [{"qqq": 1}])
    bad = write_lines(tmp_path / "bad.jsonl", [pile("x"), "{", "{"])
    long = write_lines(tmp_path / "long.jsonl", [{"instruction": "a" * 500, "output": "b"}])
    good = documents(tmp_path / "good.jsonl")
    return {
        "missing": (data_recipe(tiny_path, tmp_path / "none.jsonl"), DataError, "there is no such file"),
        "truncated": (data_recipe(tiny_path, truncated), DataError, "the file is truncated: it ends at byte"),
        "other kind": (data_recipe(tiny_path, good, stage="sft"), UserError, "stage.name=pretrain"),
        "other kind 2": (data_recipe(tiny_path, long), UserError, "stage.name=sft"),
        "no format": (data_recipe(tiny_path, wrong), DataError, "rows with the keys qqq are of no known format"),
        "wrong format": (data_recipe(tiny_path, good, format="alpaca"), DataError, "'instruction': expected a string"),
        "too many bad": (data_recipe(tiny_path, bad), DataError, "2 of 3 records are unusable"),
        "no subset": (data_recipe(tiny_path, good, subsets=["Books3"]), DataError, "subset not chosen: 35"),
        "all too long": (data_recipe(tiny_path, long, stage="sft"), DataError, "longer than a row: 1"),
        "validation": (data_recipe(tiny_path, good, validation=[str(tmp_path / "v.jsonl")]), DataError, "no such file"),
        "no model": (data_recipe(tmp_path / "nowhere", good), ModelError, ""),
    }


@pytest.mark.slow
def test_what_cannot_be_prepared_says_why_and_leaves_nothing(tmp_path: Path, tiny_path: Path) -> None:
    for name, (recipe, kind, message) in refusals(tmp_path, tiny_path).items():
        with pytest.raises(kind) as caught:
            prepare_local(recipe)
        assert message in str(caught.value), name
        assert caught.value.exit_code == 2
        assert caught.value.next_step, name
        left = [path.name for path in token_cache().iterdir()] if token_cache().exists() else []
        assert set(left) <= {"hashes"}, name


@pytest.mark.slow
def test_a_failing_disk_is_a_storage_error_and_leaves_nothing(
    tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cairn.data.shards.ShardWriter.write", full)
    with pytest.raises(StorageError, match="No space left"):
        prepare_local(data_recipe(tiny_path, documents(tmp_path / "a.jsonl")))
    assert [path.name for path in token_cache().iterdir()] == ["hashes"]


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_ray_makes_the_same_bits_as_one_process(tmp_path: Path, tiny_path: Path) -> None:
    files = [documents(tmp_path / f"{i}.jsonl.zst", count) for i, count in enumerate((5000, 30, 2100))]
    recipe = data_recipe(tiny_path, files)
    local = files_of(prepare_local(recipe))
    shutil.rmtree(token_cache())
    said: list[tuple[int, int]] = []
    prepared = prepare(recipe, on_progress=lambda done, total: said.append((done, total)))
    assert files_of(prepared) == local
    assert len(local) == 3 + 1 + 2 + 1
    assert len(said) == 7
    assert said[-1][0] == said[-1][1] == sum(path.stat().st_size for path in files)
    assert prepare(recipe).train == prepared.train


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_errors_of_a_task_reach_the_driver_as_they_are(tmp_path: Path, tiny_path: Path) -> None:
    expected = refusals(tmp_path, tiny_path)
    for name in ("truncated", "too many bad"):
        recipe, kind, message = expected[name]
        make_plan(recipe, build_tokenizer())
        with pytest.raises(kind) as caught:
            prepare(recipe)
        assert message in str(caught.value)
        assert [path.name for path in token_cache().iterdir()] == ["hashes"]
