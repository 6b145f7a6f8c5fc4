"""The rows of a live stream, shuffled within windows, while the rest is still being encoded.

The journal (`spool.py`) fixes the order of the chunks. Whole chunks make a window until it holds `shuffle_rows` rows,
or as many as came before it: so the first window is one chunk and training begins at once. Within a window the order is
drawn from the seed; a window ends with its epoch. So the rows of a step follow from the recipe, whoever asks and whenever.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from cairn.data.cursor import Cursor, require_same_data
from cairn.data.mixture import permutation
from cairn.data.rows import Row
from cairn.data.shards import open_shard, row_at
from cairn.data.spool import Entry, Spool

POLL_S = 0.05
"""How often a worker looks whether the chunk that it waits for has come."""

Found = TypeVar("Found")


@dataclass
class Window:
    """Entries of the journal whose rows are shuffled together; without rows it marks the end of `epoch`.

    `entry` is the number of the first, `row` and `first` say which row it begins with: of the epoch, and of all.
    """

    number: int
    epoch: int
    entry: int
    row: int
    first: int
    entries: list[Entry] = field(default_factory=list)
    rows: int = 0
    ends_epoch: bool = False

    def is_before(self, cursor: Cursor) -> bool:
        """Whether nobody at `cursor` needs it any more."""
        taken = not self.ends_epoch and self.row + self.rows <= cursor.row
        return self.epoch < cursor.epoch or (self.epoch == cursor.epoch and taken)

    @cached_property
    def ends(self) -> Sequence[int]:
        """How many rows of the window come before the end of each entry."""
        return list(accumulate(entry.rows for entry in self.entries))

    def order(self, seed: int, *, shuffled: bool) -> np.ndarray:
        """Row numbers of the whole stream in the order in which they come."""
        rows = permutation(self.rows, seed, self.epoch, self.number) if shuffled else np.arange(self.rows)
        return self.first + rows


class Windows:
    """Cuts the journal's entries into windows as they come."""

    def __init__(self, shuffle_rows: int) -> None:
        self.shuffle_rows = shuffle_rows
        self.open = Window(number=0, epoch=0, entry=0, row=0, first=0)

    def add(self, entry: Entry) -> list[Window]:
        """The windows that the next entry closes."""
        window = self.open
        window.entries.append(entry)
        window.rows += entry.rows
        if entry.chunk is None:
            end = replace(window, entries=[], entry=window.entry + len(window.entries), row=window.row + window.rows)
            end = replace(end, first=window.first + window.rows, rows=0, number=window.number + 1, ends_epoch=True)
            self._begin(end, epoch=window.epoch + 1, row=0)
            return [window, end]
        if window.rows and window.rows >= min(self.shuffle_rows, window.first):
            self._begin(window, epoch=window.epoch, row=window.row + window.rows)
            return [window]
        return []

    def _begin(self, before: Window, *, epoch: int, row: int) -> None:
        self.open = Window(
            number=before.number + 1,
            epoch=epoch,
            entry=before.entry + len(before.entries),
            row=row,
            first=before.first + before.rows,
        )


class Stream:
    """The feed of a spool. `leads`: this worker says how far the trainers are, and deletes what is behind."""

    def __init__(self, spool: Spool, fingerprint: str, shuffle_rows: int, *, leads: bool) -> None:
        self.spool, self.fingerprint, self.leads = spool, fingerprint, leads
        self._shuffled = shuffle_rows > 0
        self._cutting = Windows(shuffle_rows)
        self._read_bytes, self._position, self._present = 0, -1, -1
        self._windows: list[Window] = []
        self._released = Cursor(seed=0)
        self._shards: dict[str, Any] = {}
        self._order: tuple[int, int, np.ndarray] | None = None

    @property
    def epoch_rows(self) -> None:
        """Nobody knows."""
        return

    @classmethod
    def open(cls, folder: Path, shuffle_rows: int, *, leads: bool) -> Stream:
        """Wait for the producer to begin; raises what ended it, if it did not."""
        spool = Spool(folder)
        return cls(spool, _awaited(spool, spool.fingerprint), shuffle_rows, leads=leads)

    def take(self, cursor: Cursor, count: int) -> tuple[list[int], Cursor]:
        """The numbers of the next `count` rows, waiting for them where need be; raises what ended the producer."""
        require_same_data(cursor, self.fingerprint)
        taken: list[int] = []
        while len(taken) < count:
            window = _awaited(self.spool, partial(self._window, cursor))
            self._tell(window.entry)
            self._await_chunks(window)
            if window.ends_epoch:
                cursor = replace(cursor, epoch=cursor.epoch + 1, row=0)
                continue
            begin = cursor.row - window.row
            part = self._ordered(window, cursor.seed)[begin : begin + count - len(taken)].tolist()
            taken += part
            cursor = replace(cursor, row=cursor.row + len(part))
        return taken, replace(cursor, fingerprint=self.fingerprint)

    def __getitem__(self, number: int) -> Row:
        """A row that was taken."""
        window = self._windows[bisect_right(self._windows, number, key=lambda window: window.first) - 1]
        within = number - window.first
        index = bisect_right(window.ends, within)
        entry = window.entries[index]
        return row_at(self._shard(entry), within - (window.ends[index - 1] if index else 0))

    def release(self, cursor: Cursor) -> None:
        """Nobody will ask for a row before `cursor` again: the leader deletes their chunks."""
        self._released = cursor
        self._forget()

    def close(self) -> None:
        """The run is finished."""
        if self.leads:
            self.spool.finish()

    def _window(self, cursor: Cursor) -> Window | None:
        """The window of the cursor's row, or the mark of its epoch's end; None while it has not come."""
        found = next((window for window in self._windows if not window.is_before(cursor)), None)
        if found is None and not self._read():
            self._tell(self._cutting.open.entry)
        return found

    def _read(self) -> bool:
        """Whether the journal had something new."""
        before = self._read_bytes
        for entry, end in self.spool.entries(before):
            self._windows += self._cutting.add(entry)
            self._read_bytes = end
        self._forget()
        return self._read_bytes > before

    def _forget(self) -> None:
        """Drop the windows behind what was released; where the trainers are is told before anything is deleted."""
        kept = next((i for i, one in enumerate(self._windows) if not one.is_before(self._released)), len(self._windows))
        gone, self._windows = self._windows[:kept], self._windows[kept:]
        if gone:
            self._tell(self._windows[0].entry if self._windows else self._cutting.open.entry)
        for entry in (entry for window in gone for entry in window.entries if entry.rows):
            self._shards.pop(entry.path, None)
            if self.leads:
                self.spool.delete(entry)

    def _await_chunks(self, window: Window) -> None:
        """After a start from an old checkpoint they may have to be encoded again; nobody goes on before they are there."""
        if window.number > self._present:
            for entry in window.entries:
                _awaited(self.spool, partial(self._is_present, entry))
            self._present = window.number

    def _is_present(self, entry: Entry) -> bool | None:
        return self.spool.has(entry) or None

    def _tell(self, entry: int) -> None:
        if self.leads and entry > self._position:
            self.spool.set_position(entry)
            self._position = entry

    def _ordered(self, window: Window, seed: int) -> np.ndarray:
        if self._order is None or self._order[:2] != (window.number, seed):
            self._order = (window.number, seed, window.order(seed, shuffled=self._shuffled))
        return self._order[2]

    def _shard(self, entry: Entry) -> Any:
        if entry.path not in self._shards:
            self._shards[entry.path] = open_shard(self.spool.folder / entry.path)
        return self._shards[entry.path]


def _awaited(spool: Spool, find: Callable[[], Found | None]) -> Found:
    """What `find` finds in the end; raises what ended the producer, when it did not come before that."""
    while True:
        failure = spool.failure()
        found = find()
        if found is not None:
            return found
        if failure is not None:
            raise failure
        time.sleep(POLL_S)
