"""Invariant 9: a published version is whole or absent, whatever dies when."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairn.errors import StorageError
from cairn.store.card import Facts
from cairn.store.store import Store

pytestmark = pytest.mark.slow


def test_sigkill_before_every_system_call_leaves_whole_or_absent(tmp_path: Path) -> None:
    script = Path(__file__).with_name("crash_publisher.py")
    done = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert counts["publish"]["absent"] > 20
    assert counts["publish"]["whole"] >= 3
    assert counts["promote"]["absent"] > 5
    assert counts["promote"]["whole"] >= 1
    assert counts["delete"]["absent"] > 5
    assert counts["delete"]["whole"] > 5


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root; the file size limit test covers the rest")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_fills_up_at_any_point_leaves_nothing_half_written(
    small_disk: Path, source: Path, facts: Facts
) -> None:
    store = Store(small_disk / "adapters")
    filler = small_disk / "filler"
    refused = 0
    for filled_pages in range(60, 0, -1):
        filler.write_bytes(b"x" * (filled_pages * resource.getpagesize()))
        error = _failure_of_publish(store, source, facts)
        if error is None:
            break
        filler.unlink()
        refused += 1
        assert "disk is full" in error.what
        assert "free space" in error.next_step
        assert store.list() == []
        assert list(store.root.rglob(".staging/*")) == []
        assert not (store.root / "n" / "1").exists()
    assert refused > 20
    weights = "adapter_model.safetensors"
    assert (store.resolve("n@1").path / weights).read_bytes() == (source / weights).read_bytes()


def _failure_of_publish(store: Store, source: Path, facts: Facts) -> StorageError | None:
    try:
        store.publish("n", source, facts)
    except StorageError as error:
        return error
    return None


def test_a_full_disk_keeps_an_alias_where_it_was(small_disk: Path, tmp_path: Path, facts: Facts) -> None:
    tiny = tmp_path / "tiny"
    tiny.mkdir()
    (tiny / "weights").write_text("x")
    store = Store(small_disk / "adapters")
    store.publish("n", tiny, facts)
    store.publish("n", tiny, facts)
    store.promote("n", 1, "prod")
    with pytest.raises(OSError, match="No space"):
        (small_disk / "filler").write_bytes(b"x" * (1 << 20))
    with pytest.raises(StorageError, match="disk is full"):
        store.promote("n", 2, "prod")
    assert store.aliases("n") == {"prod": 1}


LIMITED = """
import resource, sys
from cairn.errors import StorageError
from cairn.store.card import Base, Facts
from cairn.store.store import Store
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    Store(sys.argv[1]).publish("n", sys.argv[2], Facts(base=Base(path="b"), method="lora"))
except StorageError as error:
    sys.exit(error.exit_code + 40)
"""


def test_a_file_size_limit_leaves_nothing_half_written(tmp_path: Path, source: Path) -> None:
    root = tmp_path / "adapters"
    done = subprocess.run([sys.executable, "-c", LIMITED, str(root), str(source)], capture_output=True, timeout=60)
    assert done.returncode == 41, done.stderr
    assert Store(root).list() == []
    assert list(root.rglob(".staging/*")) == []
