"""What a folder of token shards holds and what was left out, written last: without it the folder does not count."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from cairn.data.drops import SHOWN_EXAMPLES
from cairn.errors import DataError

MANIFEST = "manifest.json"


class ChunkSummary(msgspec.Struct, frozen=True):
    """The counts of one chunk and of its shard file (none when no row came of it).

    `records` are all lines read, `documents` those that became samples. `examples`: the first of each unusable reason.
    `judged`: of samples with a verdict, how many are good and how many bad.
    """

    name: str
    file_bytes: int
    rows: int
    records: int
    documents: int
    samples: int
    tokens: int
    trained_tokens: int
    bytes_per_subset: dict[str, int]
    drops: dict[str, int]
    cuts: dict[str, int]
    examples: dict[str, list[str]]
    judged: dict[str, int] = {}
    subset: str = ""

    @property
    def file_index(self) -> int:
        """Which of the files it is a part of; its name begins with that."""
        return int(self.name.partition("-")[0])

    @property
    def index(self) -> int:
        """Which of the file's chunks it is."""
        return int(self.name.partition("-")[2].removesuffix(".arrow"))


def joined(first: ChunkSummary, second: ChunkSummary) -> ChunkSummary:
    """Two chunks of one file counted as one."""
    return ChunkSummary(
        name=first.name,
        file_bytes=first.file_bytes + second.file_bytes,
        rows=first.rows + second.rows,
        records=first.records + second.records,
        documents=first.documents + second.documents,
        samples=first.samples + second.samples,
        tokens=first.tokens + second.tokens,
        trained_tokens=first.trained_tokens + second.trained_tokens,
        bytes_per_subset=add([first.bytes_per_subset, second.bytes_per_subset]),
        drops=add([first.drops, second.drops]),
        cuts=add([first.cuts, second.cuts]),
        examples=_first_examples([first, second]),
        judged=add([first.judged, second.judged]),
        subset=first.subset,
    )


class ShardEntry(msgspec.Struct, frozen=True):
    """One shard file: its name in the folder, its rows and its size."""

    name: str
    rows: int
    file_bytes: int


class SubsetCounts(msgspec.Struct, frozen=True):
    """What there is of a subset that is kept apart; its rows lie side by side. `source_bytes` of text."""

    name: str
    rows: int
    documents: int
    tokens: int
    source_bytes: int

    @classmethod
    def of(cls, name: str, chunks: Sequence[ChunkSummary]) -> SubsetCounts:
        """Add up the chunks of one subset."""
        return cls(
            name=name,
            rows=sum(chunk.rows for chunk in chunks),
            documents=sum(chunk.documents for chunk in chunks),
            tokens=sum(chunk.tokens for chunk in chunks),
            source_bytes=sum(sum(chunk.bytes_per_subset.values()) for chunk in chunks),
        )


class FileCounts(msgspec.Struct, frozen=True):
    """What one file gave, dropped and had cut; `path` is where it lay when it was prepared."""

    path: str
    records: int
    documents: int
    samples: int
    tokens: int
    trained_tokens: int
    drops: dict[str, int]
    cuts: dict[str, int]

    @classmethod
    def of(cls, path: str, chunks: Sequence[ChunkSummary]) -> FileCounts:
        """Add up the chunks of one file."""
        return cls(
            path=path,
            records=sum(chunk.records for chunk in chunks),
            documents=sum(chunk.documents for chunk in chunks),
            samples=sum(chunk.samples for chunk in chunks),
            tokens=sum(chunk.tokens for chunk in chunks),
            trained_tokens=sum(chunk.trained_tokens for chunk in chunks),
            drops=add(chunk.drops for chunk in chunks),
            cuts=add(chunk.cuts for chunk in chunks),
        )


class Manifest(msgspec.Struct, frozen=True):
    """The counts of all chunks, in the order of the files. `fill` is the share of row positions that hold tokens."""

    fingerprint: str
    settings: dict[str, Any]
    shards: tuple[ShardEntry, ...]
    rows: int
    records: int
    documents: int
    samples: int
    tokens: int
    trained_tokens: int
    bytes_per_subset: dict[str, int]
    drops: dict[str, int]
    cuts: dict[str, int]
    examples: dict[str, list[str]]
    fill: float
    files: tuple[FileCounts, ...] = ()
    judged: dict[str, int] = {}
    subsets: tuple[SubsetCounts, ...] = ()

    @classmethod
    def of(
        cls,
        chunks: Iterable[ChunkSummary],
        *,
        fingerprint: str,
        settings: dict[str, Any],
        sequence_length: int,
        paths: Sequence[str] = (),
    ) -> Manifest:
        """Add up the chunks; those of `paths[i]` have names that begin with i. Subsets kept apart follow one another."""
        ordered = sorted(chunks, key=lambda chunk: (chunk.subset, chunk.name))
        rows = sum(chunk.rows for chunk in ordered)
        tokens = sum(chunk.tokens for chunk in ordered)
        return cls(
            fingerprint=fingerprint,
            settings=settings,
            shards=tuple(ShardEntry(chunk.name, chunk.rows, chunk.file_bytes) for chunk in ordered if chunk.rows),
            rows=rows,
            records=sum(chunk.records for chunk in ordered),
            documents=sum(chunk.documents for chunk in ordered),
            samples=sum(chunk.samples for chunk in ordered),
            tokens=tokens,
            trained_tokens=sum(chunk.trained_tokens for chunk in ordered),
            bytes_per_subset=add(chunk.bytes_per_subset for chunk in ordered),
            drops=add(chunk.drops for chunk in ordered),
            cuts=add(chunk.cuts for chunk in ordered),
            examples=_first_examples(ordered),
            fill=tokens / (rows * sequence_length) if rows else 0.0,
            files=tuple(
                FileCounts.of(path, [chunk for chunk in ordered if chunk.file_index == index])
                for index, path in enumerate(paths)
            ),
            judged=add(chunk.judged for chunk in ordered),
            subsets=_subset_counts(ordered),
        )

    def write(self, folder: Path) -> None:
        """Put the manifest into `folder` in one atomic step."""
        staging = folder / f".{MANIFEST}.{os.getpid()}"
        staging.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))
        staging.replace(folder / MANIFEST)

    def dataset_rows(self, count: int) -> list[int]:
        """Rows of each of `count` datasets; they lie one dataset after the other."""
        datasets = self.settings["datasets"]
        rows = [0] * count
        for shard in self.shards:
            rows[datasets[int(shard.name.partition("-")[0])]] += shard.rows
        return rows

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest of `folder`; a DataError where there is none or it is no manifest."""
        path = folder / MANIFEST
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except OSError:
            raise DataError("no finished token shards here", where=str(folder), next_step="run cairn prepare") from None
        except msgspec.DecodeError as error:
            raise DataError(
                f"the manifest is damaged ({error})", where=str(path), next_step="delete the folder and prepare again"
            ) from None


def _subset_counts(ordered: Sequence[ChunkSummary]) -> tuple[SubsetCounts, ...]:
    """Of those that are kept apart and have rows."""
    groups = groupby((chunk for chunk in ordered if chunk.subset), key=lambda chunk: chunk.subset)
    counts = [SubsetCounts.of(name, list(chunks)) for name, chunks in groups]
    return tuple(count for count in counts if count.rows)


def _first_examples(chunks: Iterable[ChunkSummary]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for chunk in chunks:
        for reason, shown in chunk.examples.items():
            found[reason] = [*found.get(reason, []), *shown][:SHOWN_EXAMPLES]
    return found


def add(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """Counts by key, sorted by key."""
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(sorted(total.items()))
