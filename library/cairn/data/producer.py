"""Encodes a stream ahead of those who train on it, by a bounded lead, into a spool.

The order is that of `turns.py`, whoever encodes. A start goes on behind the last line of the journal: files behind it are
not opened, chunks behind it not encoded. Where the trainers went back to a checkpoint whose chunks are gone, they are
encoded once more; the journal says the same of them. Disk: the lead, and what came since the newest checkpoint.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from cairn.config.data import Data
from cairn.data.datasets import weights
from cairn.data.drops import is_unusable
from cairn.data.manifest import ChunkSummary, joined
from cairn.data.plan import Plan
from cairn.data.reading import Reading
from cairn.data.spool import Entry, Spool, turn_folder
from cairn.data.turns import Turns
from cairn.errors import CairnError, StorageError

LEAD_CHUNKS = 8
"""So many chunks are encoded ahead at least; where two windows of `data.shuffle_rows` are more, so many rows."""
JUDGED_RECORDS = 2048
"""From so many records on their bad share is judged while a stream goes on, at the latest at its end."""
MANIFEST_EVERY = 16
PAUSE_S = 0.05

Start = tuple[Reading, int]
"""A file and the number of its first chunk that is wanted."""
Encode = Callable[[Sequence[Start], Path], Iterator[ChunkSummary]]
"""Writes the chunks of files into a folder, in order, a few ahead of what is asked for."""


class Producer(threading.Thread):
    """Runs from `start()` to `stop()`; what goes wrong reaches the readers through the spool."""

    def __init__(self, plan: Plan, data: Data, spool: Spool, encode: Encode) -> None:
        super().__init__(name="stream", daemon=True)
        self.plan, self.data, self.spool, self.encode = plan, data, spool, encode
        self._over = threading.Event()
        self._counted: dict[int, ChunkSummary] = {}
        self._rows_before = [0]
        self._running: dict[int, Iterator[ChunkSummary]] = {}
        self._looked = (0, 0)
        self._number = 0
        self._turns = self._fresh_turns()

    def begin(self) -> None:
        """Take the spool over and start."""
        self.spool.begin(self.plan.fingerprint)
        for entry, _ in self.spool.entries():
            self._count(entry)
        self._go_to(len(self._rows_before) - 1)
        self.start()

    def stop(self) -> None:
        """Come to an end, and write the counts."""
        self._over.set()
        self.join()

    def run(self) -> None:
        """Encode until it is over; an error ends it and is told."""
        try:
            while not self._over.is_set():
                if self._is_ahead():
                    self._over.wait(PAUSE_S)
                else:
                    self._advance()
        except CairnError as error:
            self.spool.fail(error)
        except OSError as error:
            self.spool.fail(
                StorageError(
                    f"the stream cannot be written ({error})",
                    where=str(self.spool.folder),
                    next_step="free space there, or set storage.path to another disk, then run again",
                )
            )
        except Exception as error:
            self.spool.fail(CairnError(f"encoding the stream failed: {type(error).__name__}: {error}"))
        finally:
            self._close()
            with contextlib.suppress(OSError):  # a full disk was told already
                self._write_manifest()

    def _fresh_turns(self) -> Turns:
        interleaved = self.data.arrangement != "concatenated"
        return Turns(self.plan.datasets, self.plan.sizes, weights(self.data), interleaved=interleaved)

    def _go_to(self, number: int) -> None:
        """Be as after the first `number` entries."""
        self._close()
        self._turns, self._number = self._fresh_turns(), number
        for _, (entry, _) in zip(range(number), self.spool.entries(), strict=False):
            self._turns.add(entry)

    def _is_ahead(self) -> bool:
        """Whether the lead is long enough; where the trainers went back to chunks that are gone, it begins there."""
        position = self.spool.position()
        gone = not self._is_there(position) and position == self.spool.position()
        if gone or self._number < position < len(self._rows_before):
            self._go_to(position)
        rows = self._rows_before[self._number] - self._rows_before[position]
        return self._number - position >= LEAD_CHUNKS and rows >= 2 * self.data.shuffle_rows

    def _is_there(self, position: int) -> bool:
        """Whether the first rows from entry `position` on are in the spool, if they ever were; the first go first."""
        first, read_bytes = self._looked if self._looked[0] <= position else (0, 0)
        for number, (entry, end) in enumerate(self.spool.entries(read_bytes), start=first):
            if number >= position and entry.rows:
                return number >= self._number or self.spool.has(entry)
            self._looked = (number + 1, end)
        return True

    def _advance(self) -> None:
        """Publish one entry, or end a dataset's turn."""
        dataset = self._turns.due()
        if dataset is None:
            self._publish(Entry(self._turns.turns[0]))
            return
        turn = self._turns.turns[dataset]
        if dataset not in self._running:
            folder = self.spool.folder / turn_folder(turn)
            folder.mkdir(exist_ok=True)
            starts = [(self.plan.readings[file], chunk) for file, chunk in self._turns.remaining(dataset)]
            self._running[dataset] = self.encode(starts, folder)
        chunk = next(self._running[dataset], None)
        if chunk is not None:
            self._publish(Entry(turn, chunk))
            return
        del self._running[dataset]
        self._judge(so_far=True)
        self._turns.end(dataset)

    def _publish(self, entry: Entry) -> None:
        if self._number == len(self._rows_before) - 1:
            self._count(entry)
            if entry.chunk is None:
                self._judge(so_far=False)
            elif sum(chunk.records for chunk in self._counted.values()) >= JUDGED_RECORDS:
                self._judge(so_far=True)
            self.spool.append(entry)
            if self._number % MANIFEST_EVERY == 0:
                self._write_manifest()
        self._turns.add(entry)
        self._number += 1

    def _count(self, entry: Entry) -> None:
        """Every pass reads the same, so the first one is counted."""
        self._rows_before.append(self._rows_before[-1] + entry.rows)
        if entry.chunk is not None and entry.turn == 0:
            before = self._counted.get(entry.chunk.file_index)
            self._counted[entry.chunk.file_index] = joined(before, entry.chunk) if before else entry.chunk

    def _judge(self, *, so_far: bool) -> None:
        """Raise what preparing would of such data."""
        reasons = (reason for chunk in self._counted.values() for reason in chunk.drops)
        if not so_far or any(is_unusable(reason) for reason in reasons):
            self.plan.check(self.plan.manifest(list(self._counted.values())), so_far=so_far)

    def _write_manifest(self) -> None:
        manifest = self.plan.manifest(list(self._counted.values()))
        msgspec.structs.replace(manifest, shards=()).write(self.spool.folder)

    def _close(self) -> None:
        for running in self._running.values():
            close = getattr(running, "close", None)
            if close:
                close()
        self._running.clear()
