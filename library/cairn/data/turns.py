"""Whose chunk comes next in a stream of several datasets, as far as the chunks before it decide it.

Each time it is the dataset that has given the fewest rows for its share. With weights these are the shares, and a dataset
that ends begins again by itself, so a stream has no end. Without, the bytes on disk are the shares, so that all end at
about the same time; an epoch is over when all have, and a dataset comes once in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from cairn.data.spool import Entry
from cairn.errors import UserError


class Turns:
    """The state after some entries; the same entries lead to the same one."""

    def __init__(
        self, datasets: Sequence[int], sizes: Sequence[int], weights: Sequence[float | None], *, interleaved: bool
    ) -> None:
        """`datasets[i]` is the dataset of file i, `sizes[i]` its bytes."""
        self.datasets, self.interleaved = datasets, interleaved
        self.endless = any(weight is not None for weight in weights)
        numbers = range(len(weights))
        bytes_of = [sum(size for size, of in zip(sizes, datasets, strict=True) if of == i) for i in numbers]
        self._shares = [float(max(bytes_of[i], 1)) if weights[i] is None else float(weights[i] or 0) for i in numbers]
        self.turns = [0 for _ in numbers]
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        count = len(self._shares)
        self._rows, self._rows_of_turn = [0] * count, [0] * count
        self._ended = [i not in self.datasets for i in range(count)]
        self._places: list[tuple[int, int]] = [(0, 0)] * count

    def due(self) -> int | None:
        """The dataset whose chunk is next; None at the end of an epoch."""
        left = [i for i, ended in enumerate(self._ended) if not ended]
        if not left or not self.interleaved:
            return left[0] if left else None
        return min(left, key=lambda i: (self._rows[i] / self._shares[i], i))

    def remaining(self, dataset: int) -> list[tuple[int, int]]:
        """(file, first chunk) of what the dataset still has in this turn."""
        file, chunk = self._places[dataset]
        files = [i for i, of in enumerate(self.datasets) if of == dataset and i >= file]
        return [(i, chunk if i == file else 0) for i in files]

    def add(self, entry: Entry) -> None:
        """One entry more."""
        if entry.chunk is None:
            self.turns = [turn + 1 for turn in self.turns]
            self._begin_epoch()
            return
        dataset = self.datasets[entry.chunk.file_index]
        if self.turns[dataset] != entry.turn:
            self.end(dataset)
        self._rows[dataset] += entry.rows
        self._rows_of_turn[dataset] += entry.rows
        self._places[dataset] = (entry.chunk.file_index, entry.chunk.index + 1)

    def end(self, dataset: int) -> None:
        """The dataset has no more chunks: with weights it begins again, a UserError where it gave no row."""
        if not self.endless:
            self._ended[dataset] = True
            return
        if not self._rows_of_turn[dataset]:
            raise UserError("a weighted dataset has no rows", where=f"data.train.{dataset}", next_step="leave it out")
        self.turns[dataset] += 1
        self._rows_of_turn[dataset], self._places[dataset] = 0, (0, 0)
