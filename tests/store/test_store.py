"""Publish, resolve, promote: what is found, what is refused, and that versions are allotted once."""

from __future__ import annotations

import hashlib
import math
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cairn.errors import AdapterError, StorageError
from cairn.store import durable
from cairn.store.card import Base, Card, Facts, read_card
from cairn.store.names import Reference, parse_reference
from cairn.store.store import STALE_STAGING_S, Store

pytestmark = pytest.mark.unit

HOSTILE = (
    "",
    "..",
    ".",
    "a/b",
    "/etc",
    "../x",
    "a\\b",
    "a\x00b",
    "-rf",
    ".staging",
    "x" * 65,
    "a b",
    "é",
    "a\n",
    "a:1",
)


def test_a_published_version_is_found_with_its_files_and_facts(tmp_path: Path, source: Path, facts: Facts) -> None:
    store = Store(tmp_path / "adapters")
    published = store.publish("support", source, facts)
    found = Store(tmp_path / "adapters").resolve("support")
    assert (found.reference, found.path, found.card) == ("support@1", published.path, published.card)
    weights = source / "adapter_model.safetensors"
    assert found.card.files == {
        "adapter_model.safetensors": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "sub/tokenizer.json": hashlib.sha256(b"{}").hexdigest(),
    }
    assert (found.path / weights.name).read_bytes() == weights.read_bytes()
    assert found.card.libraries["torch"].startswith("2.")
    assert dict(found.card)["targets"] == ("q_proj",)


def test_references_reach_newest_version_and_alias(tmp_path: Path, source: Path, facts: Facts) -> None:
    store = Store(tmp_path)
    for _ in range(11):
        store.publish("n", source, facts)
    assert store.resolve("n").reference == "n@11"
    assert store.resolve("n@2").reference == "n@2"
    store.promote("n", 2, "prod")
    assert store.resolve("n@prod").reference == "n@2"
    assert store.promote("n", 11, "prod").reference == "n@11"
    assert store.resolve("n@prod").reference == "n@11"
    assert store.aliases("n") == {"prod": 11}
    assert [adapter.card.version for adapter in store.versions("n")] == list(range(1, 12))
    assert [adapter.reference for adapter in store.list()] == ["n@11"]


def test_a_version_that_is_published_again_keeps_no_old_card(tmp_path: Path, source: Path, facts: Facts) -> None:
    store = Store(tmp_path)
    first = store.publish("n", source, facts)
    second = store.publish("n", first.path, facts)
    assert second.card.files == first.card.files
    assert read_card(second.path).version == 2


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_refused_and_touch_nothing(name: str, tmp_path: Path, source: Path, facts: Facts) -> None:
    store = Store(tmp_path / "adapters")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(AdapterError):
        store.publish(name, source, facts)
    for reference in (name, f"n@{name}"):
        with pytest.raises(AdapterError):
            store.resolve(reference)
    assert sorted(tmp_path.rglob("*")) == before


def test_references_are_parsed() -> None:
    assert parse_reference("a") == Reference("a")
    assert parse_reference("a@3") == Reference("a", version=3)
    assert parse_reference("a@prod") == Reference("a", alias="prod")
    for bad in ("a@0", "a@03", "a@1@2", "a@", "auto", "a@９"):
        with pytest.raises(AdapterError):
            parse_reference(bad)


def test_unknown_references_say_what_there_is(tmp_path: Path, source: Path, facts: Facts) -> None:
    store = Store(tmp_path)
    with pytest.raises(AdapterError, match="the store is empty"):
        store.resolve("support")
    store.publish("support", source, facts)
    store.promote("support", 1, "prod")
    for reference, advice in (("suport", "support"), ("support@2", "it has 1"), ("support@prd", "prod")):
        with pytest.raises(AdapterError, match=advice):
            store.resolve(reference)
    with pytest.raises(AdapterError, match="no version 9"):
        store.promote("support", 9, "prod")
    assert store.aliases("support") == {"prod": 1}


def test_bad_folders_are_refused(tmp_path: Path, source: Path, facts: Facts) -> None:
    store = Store(tmp_path / "adapters")
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "missing", tmp_path / "empty"):
        with pytest.raises(AdapterError):
            store.publish("n", folder, facts)
    (source / "link").symlink_to("/etc/passwd")
    with pytest.raises(AdapterError, match="regular files"):
        store.publish("n", source, facts)
    assert store.list() == []


def test_concurrent_publishers_get_distinct_versions(tmp_path: Path, source: Path, facts: Facts) -> None:
    with ThreadPoolExecutor(8) as pool:
        published = list(pool.map(lambda _: Store(tmp_path / "s").publish("n", source, facts), range(24)))
    assert sorted(adapter.card.version for adapter in published) == list(range(1, 25))
    assert all(adapter.card == read_card(adapter.path) for adapter in published)
    assert list((tmp_path / "s" / ".staging").iterdir()) == []


def test_an_alias_is_never_seen_torn(tmp_path: Path, source: Path, facts: Facts) -> None:
    store = Store(tmp_path)
    for _ in range(10):
        store.publish("n", source, facts)
    store.promote("n", 1, "prod")
    with ThreadPoolExecutor(2) as pool:
        moves = pool.submit(lambda: [store.promote("n", 1 + i % 10, "prod") for i in range(100)])
        seen = set()
        while not moves.done():
            seen.add(store.resolve("n@prod").card.version)
        moves.result()
    assert len(seen) > 1
    assert seen <= set(range(1, 11))


def test_everything_is_flushed_before_the_version_appears(
    tmp_path: Path, source: Path, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, str]] = []
    fsync, rename = os.fsync, os.rename

    def watched_fsync(descriptor: int) -> None:
        events.append(("fsync", os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def watched_rename(old: Path, new: Path) -> None:
        staged = {str(path) for path in [old, *old.rglob("*")]}
        assert staged <= {where for what, where in events if what == "fsync"}
        events.append(("rename", str(new)))
        rename(old, new)

    monkeypatch.setattr(durable.os, "fsync", watched_fsync)
    monkeypatch.setattr(durable.os, "rename", watched_rename)
    path = Store(tmp_path / "s").publish("n", source, facts).path
    assert events[-2:] == [("rename", str(path)), ("fsync", str(path.parent))]


def test_remains_of_killed_publishers_are_swept_when_old(tmp_path: Path, source: Path, facts: Facts) -> None:
    store = Store(tmp_path)
    old, young = tmp_path / ".staging" / "old", tmp_path / ".staging" / "young"
    for folder in (old, young):
        folder.mkdir(parents=True)
        (folder / "weights").write_text("x")
    past = old.stat().st_mtime - STALE_STAGING_S - 1
    os.utime(old, (past, past))
    store.publish("n", source, facts)
    assert not old.exists()
    assert young.exists()


def test_damaged_cards_and_aliases_are_named(tmp_path: Path, source: Path, facts: Facts) -> None:
    store = Store(tmp_path)
    path = store.publish("n", source, facts).path
    store.promote("n", 1, "prod")
    (tmp_path / "n" / "aliases" / "prod").write_text("../../x")
    with pytest.raises(StorageError, match="not a version"):
        store.resolve("n@prod")
    (path / "card.json").chmod(0o644)
    (path / "card.json").write_text('{"name": 3}')
    with pytest.raises(AdapterError, match="not a card"):
        store.resolve("n")


def test_a_metric_that_is_not_finite_is_null(tmp_path: Path, source: Path) -> None:
    facts = Facts(base=Base(path="b"), method="lora", metrics={"loss": math.nan, "bpb": 1.5})
    store = Store(tmp_path)
    store.publish("n", source, facts)
    assert store.resolve("n").card.metrics == {"loss": None, "bpb": 1.5}


def test_a_deleted_version_is_gone_and_its_number_is_never_used_again(
    tmp_path: Path, source: Path, facts: Facts
) -> None:
    store = Store(tmp_path)
    for _ in range(3):
        store.publish("n", source, facts)
    assert store.delete("n@3").reference == "n@3"
    assert store.resolve("n").reference == "n@2"
    with pytest.raises(AdapterError, match="has no version 3"):
        store.resolve("n@3")
    assert store.publish("n", source, facts).reference == "n@4"
    for version in (1, 2, 4):
        store.delete(f"n@{version}")
    assert store.names() == []
    assert sorted(path.name for path in (tmp_path / "n").iterdir()) == ["deleted"]
    assert list((tmp_path / ".staging").iterdir()) == []
    assert store.publish("n", source, facts).reference == "n@5"


def test_a_version_that_an_alias_points_at_stays(tmp_path: Path, source: Path, facts: Facts) -> None:
    store = Store(tmp_path)
    store.publish("n", source, facts)
    store.publish("n", source, facts)
    store.promote("n", 1, "prod")
    with pytest.raises(AdapterError, match="n@prod points at n@1"):
        store.delete("n@1")
    for vague in ("n", "n@prod"):
        with pytest.raises(AdapterError, match="names no version"):
            store.delete(vague)
    assert store.resolve("n@prod").reference == "n@1"
    store.promote("n", 2, "prod")
    store.delete("n@1")
    assert [adapter.reference for adapter in store.versions("n")] == ["n@2"]


def test_an_alias_that_moves_while_its_version_is_deleted_keeps_it(
    tmp_path: Path, source: Path, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    store.publish("n", source, facts)
    require_free, looks = store._require_free, iter((False, True))

    def look(card: Card) -> None:
        if next(looks):
            monkeypatch.setattr(store, "_deleted", lambda name: set())  # the other process has not seen the deletion
            store.promote("n", 1, "prod")
        require_free(card)

    monkeypatch.setattr(store, "_require_free", look)
    with pytest.raises(AdapterError, match="n@prod points at n@1"):
        store.delete("n@1")
    assert Store(tmp_path).resolve("n@prod").reference == "n@1"


def test_a_deletion_that_was_killed_has_happened(
    tmp_path: Path, source: Path, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    store.publish("n", source, facts)
    store.publish("n", source, facts)
    monkeypatch.setattr(store, "_discard", lambda folder: None)
    store.delete("n@2")
    assert (tmp_path / "n" / "2").is_dir()
    fresh = Store(tmp_path)
    assert fresh.resolve("n").reference == "n@1"
    assert fresh.publish("n", source, facts).reference == "n@3"
    monkeypatch.setattr(fresh, "resolve", lambda reference: store._open("n", 2))  # as it was found before the deletion
    with pytest.raises(AdapterError, match="was deleted just now"):
        fresh.promote("n", 2, "prod")


def test_a_number_that_was_used_between_choosing_and_taking_it_is_not_taken(
    tmp_path: Path, source: Path, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = Store(tmp_path), Store(tmp_path)
    placed, first = store._placed, [True]

    def place(staging: Path, target: Path) -> bool:
        if first.pop() if first else False:
            other.delete(other.publish("n", source, facts).reference)
        return placed(staging, target)

    monkeypatch.setattr(store, "_placed", place)
    assert store.publish("n", source, facts).reference == "n@2"
    assert [adapter.card.version for adapter in store.versions("n")] == [2]


def test_publishing_and_deleting_at_once_never_gives_a_number_twice(tmp_path: Path, source: Path, facts: Facts) -> None:
    def publish_and_delete(_: int) -> int:
        store = Store(tmp_path)
        adapter = store.publish("n", source, facts)
        store.delete(adapter.reference)
        return adapter.card.version

    with ThreadPoolExecutor(6) as pool:
        versions = list(pool.map(publish_and_delete, range(24)))
    assert len(set(versions)) == 24
    assert Store(tmp_path).names() == []
