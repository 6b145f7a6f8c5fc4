"""The folder between who encodes a stream and who trains on it: a journal that grows, and the chunks it names.

    journal.jsonl          the fingerprint, then one line for each chunk in the order of the stream, and for epochs' ends
    round_00000/….arrow    the rows of a chunk, as in prepared shards; deleted once no checkpoint needs them
    position.json          which line the trainers have come to
    failure.json           what ended the producer
    finished               there once the run needs nothing more
    manifest.json          counts of what was read and left out, in the end and on the way

One producer appends whole lines, after the chunk has its name; readers take whole lines, so a chunk is there or not.
A line is about 500 bytes and stays, so that a stream can be taken up at any row; the chunks are what is large.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from cairn import errors
from cairn.data.manifest import ChunkSummary
from cairn.errors import CairnError, DataError

JOURNAL, POSITION, FAILURE, FINISHED = "journal.jsonl", "position.json", "failure.json", "finished"


class Entry(msgspec.Struct, frozen=True):
    """A place in the stream: a chunk of a dataset's pass number `turn` (from 0), or without a chunk an epoch's end."""

    turn: int
    chunk: ChunkSummary | None = None

    @property
    def rows(self) -> int:
        """Rows of the chunk."""
        return self.chunk.rows if self.chunk else 0

    @property
    def path(self) -> str:
        """The chunk's file within the spool."""
        assert self.chunk is not None, "an epoch's end has no file"
        return f"{turn_folder(self.turn)}/{self.chunk.name}"


class _Header(msgspec.Struct, frozen=True):
    fingerprint: str


class _Failure(msgspec.Struct, frozen=True):
    kind: str
    what: str
    where: str
    next_step: str


def turn_folder(turn: int) -> str:
    """Where the chunks of a pass lie: each pass encodes a chunk anew under the same name."""
    return f"round_{turn:05d}"


class Spool:
    """The folder's content, for its one producer and its readers."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self._journal = self.folder / JOURNAL

    def begin(self, fingerprint: str) -> None:
        """Make it the producer's: what an earlier one left stays if it is of the same data, but for torn lines."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / FAILURE).unlink(missing_ok=True)
        if self._journal.exists():
            kept = self._journal.read_bytes()
            kept = kept[: kept.rfind(b"\n") + 1]
            if kept and msgspec.json.decode(kept.partition(b"\n")[0], type=_Header).fingerprint == fingerprint:
                _replace(self._journal, kept)
                self._tidy()
                return
        self.clear()
        _replace(self._journal, msgspec.json.encode(_Header(fingerprint)) + b"\n")

    def _tidy(self) -> None:
        """Keep the newest chunks that follow each other without a gap: where one is there, all behind it are."""
        there = {path.relative_to(self.folder).as_posix() for path in self.folder.glob("round_*/*")}
        kept: list[str] = []
        for entry, _ in self.entries():
            if entry.rows and entry.path in there:
                kept.append(entry.path)
            elif entry.rows:
                kept.clear()
        for path in there.difference(kept):
            (self.folder / path).unlink()

    def append(self, entry: Entry) -> None:
        """The next entry; its chunk's file is there."""
        with self._journal.open("ab") as stream:
            stream.write(msgspec.json.encode(entry) + b"\n")

    def fingerprint(self) -> str | None:
        """Of the data; none before the producer began."""
        try:
            with self._journal.open("rb") as stream:
                return msgspec.json.decode(stream.readline(), type=_Header).fingerprint
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def entries(self, after: int = 0) -> Iterator[tuple[Entry, int]]:
        """The whole entries behind byte `after` of the journal (0: all), each with the byte at which it ends."""
        with self._journal.open("rb") as stream:
            stream.seek(after)
            for line in stream:
                if not line.endswith(b"\n"):
                    return
                after += len(line)
                if b'"turn"' in line:
                    yield msgspec.json.decode(line, type=Entry), after

    def fail(self, error: CairnError) -> None:
        """Tell the readers why nothing more comes."""
        told = _Failure(type(error).__name__, error.what, error.where, error.next_step)
        _replace(self.folder / FAILURE, msgspec.json.encode(told))

    def failure(self) -> CairnError | None:
        """What ended the producer, as the error that it was."""
        try:
            told = msgspec.json.decode((self.folder / FAILURE).read_bytes(), type=_Failure)
        except FileNotFoundError:
            return None
        kind = getattr(errors, told.kind, CairnError)
        error: CairnError = kind(told.what, where=told.where, next_step=told.next_step)
        return error

    def set_position(self, entry: int) -> None:
        """The trainers take rows of entry number `entry` (from 0) now, and none before it."""
        _replace(self.folder / POSITION, msgspec.json.encode(entry))

    def position(self) -> int:
        """What was last set; 0 before."""
        try:
            return msgspec.json.decode((self.folder / POSITION).read_bytes(), type=int)
        except FileNotFoundError:
            return 0

    def has(self, entry: Entry) -> bool:
        """Whether the entry's chunk is there; one without rows always is. DataError for one of another size."""
        if not entry.rows:
            return True
        path = self.folder / entry.path
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            return False
        if entry.chunk and size != entry.chunk.file_bytes:
            raise DataError(
                f"the chunk has {size} bytes, the journal says {entry.chunk.file_bytes}",
                where=str(path),
                next_step="delete this file and start the run again: it is encoded anew",
            )
        return True

    def delete(self, entry: Entry) -> None:
        """The entry's chunk is not needed any more."""
        if entry.rows:
            (self.folder / entry.path).unlink(missing_ok=True)

    def finish(self) -> None:
        """Say that the run needs nothing more."""
        (self.folder / FINISHED).touch()

    def is_finished(self) -> bool:
        """Whether that was said."""
        return (self.folder / FINISHED).exists()

    def clear(self) -> None:
        """Everything but the manifest goes."""
        for name in (JOURNAL, POSITION, FAILURE, FINISHED):
            (self.folder / name).unlink(missing_ok=True)
        for folder in self.folder.glob("round_*"):
            shutil.rmtree(folder, ignore_errors=True)


def _replace(path: Path, content: bytes) -> None:
    draft = path.with_name(f".{path.name}")
    draft.write_bytes(content)
    draft.replace(path)
