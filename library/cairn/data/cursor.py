"""Where the stream of rows stands: seed, epoch and row, the same for every number of workers.

The rows of an epoch, in their order, are the mixture's (`data/mixture.py`). The loop takes those of one global batch at
a time and each worker its share of them, so what step s trains on never depends on who carries it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from cairn.data.mixture import Mixture
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


def take(mixture: Mixture, cursor: Cursor, count: int) -> tuple[list[int], Cursor]:
    """The next `count` row indices, across epoch ends where need be, and the cursor after them.

    A cursor of other shards is a UserError.
    """
    require_same_data(cursor, mixture.fingerprint)
    rows = len(mixture)
    if rows == 0:
        raise UserError("there are no rows to train on", where=mixture.fingerprint)
    taken: list[int] = []
    epoch, row = cursor.epoch, cursor.row
    while len(taken) < count:
        if row == rows:
            epoch, row = epoch + 1, 0
        until = min(rows, row + count - len(taken))
        taken.extend(mixture.order(cursor.seed, epoch)[row:until].tolist())
        row = until
    return taken, replace(cursor, epoch=epoch, row=row, fingerprint=mixture.fingerprint)


def require_same_data(cursor: Cursor, fingerprint: str) -> None:
    """UserError where the cursor is of other data."""
    if cursor.fingerprint and cursor.fingerprint != fingerprint:
        raise UserError(
            f"the data changed: the checkpoint read {cursor.fingerprint}, this is {fingerprint}",
            next_step="restore the data and its settings, or start a run under another name",
        )


def share(indices: Sequence[int], *, rank: int, world_size: int) -> list[int]:
    """The part of a global batch that worker `rank` of `world_size` carries out."""
    return list(indices[rank::world_size])
