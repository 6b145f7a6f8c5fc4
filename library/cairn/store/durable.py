"""File writes that survive what comes after them: data and directory entries are flushed to the disk (fsync).

The store's promise (a version is whole or absent) rests on this order: every file flushed, every directory that
names one flushed, then one rename, then the directory of the rename flushed. The cost is a few milliseconds a file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from cairn.errors import AdapterError, StorageError

CHUNK_BYTES = 4 << 20


@contextlib.contextmanager
def storage_errors(where: Path) -> Iterator[None]:
    """An operating system's error inside becomes a StorageError that says what to do."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise StorageError(
            "the disk is full, nothing was published" if full else f"storage failed ({error})",
            where=str(where),
            next_step="free space or set storage.path to another disk, then run again"
            if full
            else "check that the storage is mounted and writable, then run again",
        ) from error


def list_files(folder: Path) -> list[str]:
    """Relative paths of the regular files under `folder`, sorted; a link or a device is refused."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise AdapterError(
                "only regular files can be published", where=str(path), next_step="replace it by the file it stands for"
            )
        if path.is_file():
            found.append(path.relative_to(folder).as_posix())
    return found


def copy_file(source: Path, target: Path) -> str:
    """Copy bytes to a new, read-only, flushed file; returns their sha256."""
    digest = hashlib.sha256()
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
    with source.open("rb") as reader, os.fdopen(descriptor, "wb") as writer:
        while chunk := reader.read(CHUNK_BYTES):
            digest.update(chunk)
            writer.write(chunk)
        writer.flush()
        os.fsync(writer.fileno())
    return digest.hexdigest()


def write_new(path: Path, text: str) -> None:
    """A new, read-only, flushed file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
    with os.fdopen(descriptor, "w", encoding="utf-8") as writer:
        writer.write(text)
        writer.flush()
        os.fsync(writer.fileno())


def replace_file(path: Path, text: str) -> None:
    """Set the content of `path` in one atomic step: readers see the old text or the new, whole."""
    draft = path.parent / f".{path.name}.{uuid.uuid4().hex}"
    try:
        write_new(draft, text)
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    flush_directory(path.parent)


def flush_directory(folder: Path) -> None:
    """Flush the entries of a directory."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(folder: Path) -> None:
    """Create `folder` and its missing parents, each entry flushed; an existing one is fine."""
    if folder.is_dir():
        return
    make_directory(folder.parent)
    folder.mkdir(exist_ok=True)
    flush_directory(folder.parent)
