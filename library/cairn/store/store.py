"""The store: published versions that never change, and aliases that move.

    <root>/<name>/<version>/…        files and card.json, complete from the moment the folder exists
    <root>/<name>/aliases/<alias>    a version number
    <root>/<name>/deleted/<version>  when it was deleted; from then on it is gone, and its number is never used again
    <root>/.staging/<id>/            a publish in progress, or the remains of one that was killed

A version appears by one rename of a flushed staging folder. The rename also allots the number: it fails when the
folder exists, and the publisher takes the next one, so concurrent publishers need no lock. Needs a file system with
atomic rename (local disks, NFS). A publish costs one copy of the files.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cairn.errors import AdapterError, StorageError, did_you_mean
from cairn.store.card import CARD_FILE, Card, Facts, read_card
from cairn.store.durable import (
    copy_file,
    flush_directory,
    list_files,
    make_directory,
    replace_file,
    storage_errors,
    write_new,
)
from cairn.store.names import check_alias, check_name, parse_reference, parse_version

STAGING = ".staging"
ALIASES = "aliases"
DELETED = "deleted"
STALE_STAGING_S = 24 * 3600
TAKEN = (errno.EEXIST, errno.ENOTEMPTY)


@dataclass(frozen=True)
class Adapter:
    """A published version: `path` holds the files of `card.files` and the card."""

    reference: str
    path: Path
    card: Card


class Store:
    """The versions under one root folder, `<storage.path>/adapters`."""

    noun = "adapter"
    how_to_fill = "set storage.publish in a recipe and train"

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    def publish(self, name: str, folder: str | Path, facts: Facts) -> Adapter:
        """Copy `folder` in as the next version of `name`; whole or not at all.

        Raises AdapterError for a bad name or folder, StorageError when the disk fails; then nothing is visible.
        """
        check_name(name)
        folder = Path(folder)
        names = _publishable(folder)
        with storage_errors(self.root):
            make_directory(self.root / name)
            make_directory(self.root / STAGING)
            self._sweep()
            staging = self.root / STAGING / uuid.uuid4().hex
            staging.mkdir()
            try:
                files = _stage(folder, names, staging)
                return self._appear(name, staging, facts, files)
            finally:
                shutil.rmtree(staging, ignore_errors=True)

    def _appear(self, name: str, staging: Path, facts: Facts, files: dict[str, str]) -> Adapter:
        """Give the staged folder the next free number and its card, and move it into place."""
        version = max((*_numbers_in(self.root / name), *self._deleted(name)), default=0) + 1
        while True:
            card = Card(**dict(facts), name=name, version=version, created=datetime.now(UTC).isoformat(), files=files)
            write_new(staging / CARD_FILE, card.text())
            flush_directory(staging)
            target = self.root / name / str(version)
            if self._placed(staging, target):
                return Adapter(card.reference, target, card)
            (staging / CARD_FILE).unlink()
            version += 1

    def _placed(self, staging: Path, target: Path) -> bool:
        """Move the staged folder into place; False where its number was given out before."""
        try:
            os.rename(staging, target)
        except OSError as error:
            if error.errno not in TAKEN:
                raise
            return False
        if int(target.name) in self._deleted(target.parent.name):  # published and deleted since the number was chosen
            os.rename(target, staging)
            return False
        flush_directory(target.parent)
        return True

    def resolve(self, reference: str) -> Adapter:
        """`name` (newest), `name@3` or `name@alias` → the version; AdapterError when there is none."""
        wanted = parse_reference(reference)
        numbers = self._numbers(wanted.name)
        if not numbers:
            raise AdapterError(
                f"there is no {self.noun} '{wanted.name}'", where=str(self.root), next_step=self._advice(wanted.name)
            )
        version = wanted.version or numbers[-1]
        if wanted.alias:
            version = self._pointed_at(wanted.name, wanted.alias)
        if version not in numbers:
            raise AdapterError(
                f"'{wanted.name}' has no version {version}",
                where=str(self.root),
                next_step=f"it has {', '.join(map(str, numbers))}",
            )
        return self._open(wanted.name, version)

    def promote(self, name: str, version: int, alias: str) -> Adapter:
        """Point `alias` at a version, in one atomic write; returns the version."""
        check_alias(alias)
        adapter = self.resolve(f"{name}@{version}")
        with storage_errors(self.root):
            make_directory(self.root / name / ALIASES)
            replace_file(self.root / name / ALIASES / alias, f"{version}\n")
        if version in self._deleted(name):
            raise AdapterError(f"{adapter.reference} was deleted just now", next_step=f"promote another to {alias}")
        return adapter

    def delete(self, reference: str) -> Adapter:
        """Delete the version `name@3`; its number is never given out again. Returns what it was.

        AdapterError without a version number, and while an alias points at it: looked at again after the deletion has
        begun, as `promote` looks for a deletion after it has moved an alias.
        """
        wanted = parse_reference(reference)
        if wanted.version is None:
            raise AdapterError(f"'{reference}' names no version", next_step=f"say which: {wanted.name}@1")
        adapter = self.resolve(reference)
        marker = self.root / wanted.name / DELETED / str(wanted.version)
        self._require_free(adapter.card)
        with storage_errors(self.root):
            make_directory(marker.parent)
            make_directory(self.root / STAGING)
            write_new(marker, f"{datetime.now(UTC).isoformat()}\n")
            flush_directory(marker.parent)
            try:
                self._require_free(adapter.card)
            except AdapterError:
                marker.unlink()
                raise
            self._discard(adapter.path)
        return adapter

    def _require_free(self, card: Card) -> None:
        """AdapterError while an alias points at the version."""
        pointing = sorted(alias for alias, version in self.aliases(card.name).items() if version == card.version)
        if pointing:
            raise AdapterError(
                f"the alias {card.name}@{pointing[0]} points at {card.reference}",
                where=str(self.root),
                next_step=f"promote another version to {pointing[0]} first",
            )

    def _discard(self, folder: Path) -> None:
        """Out of sight in one step, then removed."""
        away = self.root / STAGING / uuid.uuid4().hex
        os.rename(folder, away)
        flush_directory(folder.parent)
        shutil.rmtree(away)

    def list(self) -> Sequence[Adapter]:
        """The newest version of every name, by name."""
        return [self._open(name, self._numbers(name)[-1]) for name in self.names()]

    def names(self) -> Sequence[str]:
        """Names with at least one version, sorted."""
        if not self.root.is_dir():
            return []
        found = [path.name for path in self.root.iterdir() if path.is_dir() and path.name != STAGING]
        return sorted(name for name in found if self._numbers(name))

    def versions(self, name: str) -> Sequence[Adapter]:
        """All versions of `name`, oldest first; empty when there are none."""
        check_name(name)
        return [self._open(name, version) for version in self._numbers(name)]

    def aliases(self, name: str) -> dict[str, int]:
        """alias → version."""
        folder = self.root / check_name(name) / ALIASES
        if not folder.is_dir():
            return {}
        found = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
        return {alias: self._pointed_at(name, alias) for alias in found}

    def _open(self, name: str, version: int) -> Adapter:
        path = self.root / name / str(version)
        card = read_card(path)
        if (card.name, card.version) != (name, version):
            raise AdapterError(
                f"the card is of {card.reference}", where=str(path), next_step="versions are never moved or renamed"
            )
        return Adapter(card.reference, path, card)

    def _numbers(self, name: str) -> Sequence[int]:
        return sorted(_numbers_in(self.root / name) - self._deleted(name))

    def _deleted(self, name: str) -> set[int]:
        return _numbers_in(self.root / name / DELETED)

    def _pointed_at(self, name: str, alias: str) -> int:
        path = self.root / name / ALIASES / check_alias(alias)
        try:
            text = path.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            known = self.aliases(name)
            advice = did_you_mean(alias, known) if known else f"set it with: cairn adapters promote {name} 1 {alias}"
            raise AdapterError(f"'{name}' has no alias '{alias}'", where=str(self.root), next_step=advice) from None
        version = parse_version(text)
        if version is None:
            raise StorageError(f"not a version: {text[:80]!r}", where=str(path), next_step="promote the alias again")
        return version

    def _advice(self, name: str) -> str:
        names = self.names()
        return did_you_mean(name, names) if names else f"the store is empty: {self.how_to_fill}"

    def _sweep(self) -> None:
        """Remove what publishers left that were killed long ago."""
        for entry in os.scandir(self.root / STAGING):
            with contextlib.suppress(FileNotFoundError):  # another publisher has just finished with it
                if time.time() - entry.stat().st_mtime > STALE_STAGING_S:
                    shutil.rmtree(entry.path)


def _numbers_in(folder: Path) -> set[int]:
    """Version numbers that entries of `folder` are named by."""
    try:
        return {version for entry in os.scandir(folder) if (version := parse_version(entry.name))}
    except (FileNotFoundError, NotADirectoryError):
        return set()


def _publishable(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise AdapterError(
            "not a folder", where=str(folder), next_step="give the folder that holds the adapter's files"
        )
    names = [name for name in list_files(folder) if name != CARD_FILE]
    if not names:
        raise AdapterError("the folder is empty", where=str(folder), next_step="give the folder of a finished run")
    return names


def _stage(folder: Path, names: list[str], staging: Path) -> dict[str, str]:
    """Copy and flush everything; relative path → sha256."""
    files = {}
    for name in names:
        make_directory((staging / name).parent)
        files[name] = copy_file(folder / name, staging / name)
    for parent in sorted({(staging / name).parent for name in names}, reverse=True):
        flush_directory(parent)
    return files
