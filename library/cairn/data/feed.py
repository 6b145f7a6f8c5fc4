"""Where the loop's rows come from: prepared shards in an order drawn over all of them, or a live stream.

Both give the rows of a global batch by a cursor, the same ones whoever asks, so the loop does not know which it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from cairn.config.data import Data
from cairn.data.cursor import Cursor, take
from cairn.data.datasets import weights
from cairn.data.manifest import Manifest
from cairn.data.mixture import Mixture
from cairn.data.rows import Row
from cairn.data.shards import TokenShards
from cairn.data.shares import subset_mixture
from cairn.data.stream import Stream


class Feed(Protocol):
    """Rows by number, and which numbers come next."""

    fingerprint: str

    @property
    def epoch_rows(self) -> int | None:
        """Rows of an epoch; none where nobody knows yet."""

    def take(self, cursor: Cursor, count: int) -> tuple[list[int], Cursor]:
        """The numbers of the next `count` rows, and the cursor after them. A cursor of other data is a UserError."""

    def __getitem__(self, number: int) -> Row:
        """A row whose number was taken from the cursor of the last `release` on."""

    def release(self, cursor: Cursor) -> None:
        """Nobody will ask for a row before `cursor` again."""

    def close(self) -> None:
        """The run is finished: nobody will ask for a row at all."""


class Prepared:
    """All rows of a folder of token shards."""

    def __init__(self, shards: TokenShards, mixture: Mixture) -> None:
        self.shards, self.mixture = shards, mixture
        self.fingerprint = shards.fingerprint

    @property
    def epoch_rows(self) -> int:
        """Rows of an epoch."""
        return len(self.mixture)

    def take(self, cursor: Cursor, count: int) -> tuple[list[int], Cursor]:
        """As `cairn.data.cursor.take`."""
        return take(self.mixture, cursor, count)

    def __getitem__(self, number: int) -> Row:
        return self.shards[number]

    def release(self, cursor: Cursor) -> None:
        """Shards stay."""

    def close(self) -> None:
        """Shards stay."""


def open_feed(data: Data, folder: Path, *, leads: bool) -> Feed:
    """The rows in `folder`: those of a stream's spool with `data.streaming`, else of prepared token shards.

    `leads`: this worker speaks for all when a stream is told how far they are.
    """
    if data.streaming:
        return Stream.open(folder, data.shuffle_rows, leads=leads)
    shards = TokenShards.open(folder)
    return Prepared(shards, mixture_of(data, shards.manifest))


def mixture_of(data: Data, manifest: Manifest) -> Mixture:
    """How the rows that `manifest` tells of make an epoch. UserError where a subset has no weight."""
    if data.mixture is not None:
        return subset_mixture(
            data.mixture,
            manifest.subsets,
            fingerprint=manifest.fingerprint,
            ends=data.epoch_ends,
            arrangement=data.arrangement,
        )
    shares = weights(data)
    return Mixture.of(
        manifest.dataset_rows(len(shares)),
        fingerprint=manifest.fingerprint,
        weights=shares,
        ends=data.epoch_ends,
        arrangement=data.arrangement,
    )
