"""Where the stream of rows stands: seed, epoch and row, the same for every number of workers.

Each epoch is a fresh permutation of all rows. The loop takes the rows of one global batch at a time and each worker
its share of them, so what step s trains on never depends on who carries it out. The permutation of the current epoch
is held in memory (8 bytes a row).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from cairn.errors import UserError


@dataclass(frozen=True)
class Cursor:
    """`row` rows of `epoch` are taken already. `fingerprint` names the shards it belongs to."""

    seed: int
    epoch: int = 0
    row: int = 0
    fingerprint: str = ""

    def plain(self) -> dict[str, Any]:
        """For a checkpoint; `Cursor(**plain)` gives it back."""
        return asdict(self)


class Shards(Protocol):
    """What a cursor needs of token shards."""

    fingerprint: str

    def __len__(self) -> int: ...


@lru_cache(maxsize=2)
def order(rows: int, seed: int, epoch: int) -> np.ndarray:
    """A permutation of range(rows), int64, read only; PCG64 seeded by (seed, epoch)."""
    permutation = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch]))).permutation(rows)
    permutation.setflags(write=False)
    return permutation


def take(shards: Shards, cursor: Cursor, count: int) -> tuple[list[int], Cursor]:
    """The next `count` row indices, across epoch ends where need be, and the cursor after them.

    A cursor of other shards is a UserError.
    """
    if cursor.fingerprint and cursor.fingerprint != shards.fingerprint:
        raise UserError(
            f"the data changed: the checkpoint read {cursor.fingerprint}, these shards are {shards.fingerprint}",
            next_step="restore the data and its settings, or start a run under another name",
        )
    rows = len(shards)
    if rows == 0:
        raise UserError("there are no rows to train on", where=shards.fingerprint)
    taken: list[int] = []
    epoch, row = cursor.epoch, cursor.row
    while len(taken) < count:
        if row == rows:
            epoch, row = epoch + 1, 0
        until = min(rows, row + count - len(taken))
        taken.extend(order(rows, cursor.seed, epoch)[row:until].tolist())
        row = until
    return taken, replace(cursor, epoch=epoch, row=row, fingerprint=shards.fingerprint)


def share(indices: Sequence[int], *, rank: int, world_size: int) -> list[int]:
    """The part of a global batch that worker `rank` of `world_size` carries out."""
    return list(indices[rank::world_size])
