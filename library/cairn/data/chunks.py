"""The unit of preparing: a chunk of one file's records becomes one shard file and one summary.

Where a chunk begins and ends depends on the file alone, and a chunk is encoded and packed by itself, so the shards
are the same bits whoever makes them, in whatever order, and however often a task is retried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from cairn.data.components import canonical_tag
from cairn.data.conversion import converted
from cairn.data.drops import CutReason, Dropped, DropReason, Rejected, note
from cairn.data.encoding import Encoder, TrainOn
from cairn.data.judging import judged_samples
from cairn.data.manifest import ChunkSummary
from cairn.data.packing import pack, row_of
from cairn.data.reading import Reading, records_of
from cairn.data.rows import Sample
from cairn.data.shards import ShardWriter
from cairn.data.truncation import Truncation
from cairn.errors import DataError
from cairn.records import Comparison, Conversation, Document, Judgement, Message, Record

Kind = TypeVar("Kind", bound=Record)

CHUNK_RECORDS = 2048
CHUNK_CHARACTERS = 4 << 20
"""A chunk ends at whichever comes first; a document longer than that is a chunk of its own."""
OPEN_CHARACTERS = 16 * CHUNK_CHARACTERS
"""Of several subsets kept apart so much text waits in all; then the largest of their chunks ends."""


class Chunk(msgspec.Struct):
    """Some records of one file. `bytes_read` is how far into the file on disk reading had come. `subset`: all are of it,
    where subsets are kept apart."""

    file_index: int
    index: int
    records: list[Record]
    drops: dict[str, int]
    examples: dict[str, list[str]]
    bytes_read: int
    subset: str = ""

    @property
    def name(self) -> str:
        """Its shard file."""
        return f"{self.file_index:05d}-{self.index:06d}.arrow"


@dataclass(frozen=True)
class Shaping:
    """How records become rows."""

    sequence_length: int
    truncation: Truncation
    packing: bool
    train_on: TrainOn = "all"


def read_chunks(reading: Reading) -> Iterator[Chunk]:
    """The chunks of one file, in order; at least one, so that its counts are kept. DataError for another kind.

    Subsets that are kept apart each fill a chunk of their own; memory: OPEN_CHARACTERS of text.
    """
    position = 0

    def remember(read: int) -> None:
        nonlocal position
        position = read

    cutter = _Cutter(reading.file_index)
    for record in records_of(reading, on_bytes=remember):
        if isinstance(record, Rejected):
            full = cutter.leave_out(record)
        else:
            wanted = converted(record, reading.kind, reading.train_on)
            if wanted is None:
                raise DataError(
                    f"a {reading.kind} is needed, this is a {kind_of_record(record)}", where=str(record.source)
                )
            full = cutter.add(canonical_tag(record.subset) if reading.by_subset else "", wanted, _size(record))
        if full is not None:
            yield cutter.chunk(full, position)
    while not cutter.is_done:
        yield cutter.chunk(cutter.first, position)


class _Cutter:
    """Records of one file, until they are chunks. What is left out goes with the next chunk, whichever that is."""

    def __init__(self, file_index: int) -> None:
        self.file_index, self.index = file_index, 0
        self.records: dict[str, list[Record]] = {}
        self.characters: Counter[str] = Counter()
        self.last = ""
        self._forget()

    def _forget(self) -> None:
        self.drops: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}

    @property
    def first(self) -> str:
        """The subset whose open chunk is the oldest."""
        return next(iter(self.records), "")

    @property
    def is_done(self) -> bool:
        """Nothing is left, and there was a chunk."""
        return not self.records and not self.drops and self.index > 0

    def leave_out(self, rejected: Rejected) -> str | None:
        """Count it; the subset whose chunk is full now, if any."""
        note(self.drops, self.examples, rejected.reason, f"{rejected.source}: {rejected.detail}")
        return self._full(self.last)

    def add(self, subset: str, records: Sequence[Record], characters: int) -> str | None:
        """Records that came of one; the subset whose chunk is full now, if any."""
        self.last = subset
        self.records.setdefault(subset, []).extend(records)
        self.characters[subset] += characters
        if self.characters.total() > OPEN_CHARACTERS:
            return max(self.records, key=lambda name: self.characters[name])
        return self._full(subset)

    def _full(self, subset: str) -> str | None:
        many = len(self.records.get(subset, ())) + self.drops.total() >= CHUNK_RECORDS
        return subset if many or self.characters[subset] >= CHUNK_CHARACTERS else None

    def chunk(self, subset: str, position: int) -> Chunk:
        """What there is of `subset`, with all that was left out since the last one."""
        records = self.records.pop(subset, [])
        del self.characters[subset]
        cut = Chunk(self.file_index, self.index, records, dict(self.drops), self.examples, position, subset)
        self.index += 1
        self._forget()
        return cut


def kind_of_record(record: Record) -> str:
    """The name of a record's kind, as in KINDS."""
    return type(record).__name__.lower()


def _size(record: Record) -> int:
    match record:
        case Document():
            return len(record.text)
        case Conversation():
            return _characters(record.messages)
        case Comparison():
            return _characters((*record.prompt, *record.chosen, *record.rejected))
        case Judgement():
            return _characters((*record.prompt, *record.answer))


def _characters(messages: Iterable[Message]) -> int:
    return sum(len(message.content) for message in messages)


def write_chunk(chunk: Chunk, folder: Path, tokenizer: Any, shaping: Shaping) -> ChunkSummary:
    """Encode, pack and write one chunk; a file of the same name is replaced by the same bits."""
    encoder = Encoder(tokenizer, shaping.sequence_length, shaping.truncation, train_on=shaping.train_on)
    drops, examples = Counter(chunk.drops), {reason: [*shown] for reason, shown in chunk.examples.items()}
    samples: list[Sample] = []
    documents = 0
    for record, encoded in zip(chunk.records, encode_records(encoder, chunk.records), strict=True):
        if isinstance(encoded, Dropped):
            note(drops, examples, encoded.reason, f"{record.source}: {encoded.detail}")
        else:
            samples.extend(encoded)
            documents += 1
    rows = pack(samples, shaping.sequence_length) if shaping.packing else (row_of([sample]) for sample in samples)
    writer = ShardWriter(folder / chunk.name)
    if samples:
        with writer:
            for row in rows:
                writer.write(row)
    return _summary(chunk, samples, drops, encoder.cuts, examples, documents, writer)


def _summary(
    chunk: Chunk,
    samples: list[Sample],
    drops: Counter[str],
    cuts: Counter[CutReason],
    examples: dict[str, list[str]],
    documents: int,
    written: ShardWriter,
) -> ChunkSummary:
    subsets: Counter[str] = Counter()
    for sample in samples:
        subsets[sample.subset] += sum(part.source_bytes for part in sample.parts)
    return ChunkSummary(
        name=chunk.name,
        file_bytes=written.file_bytes,
        rows=written.rows,
        records=len(chunk.records) + sum(chunk.drops.values()),
        documents=documents,
        samples=len(samples),
        tokens=sum(len(sample) for sample in samples),
        trained_tokens=sum(int((part.weights > 0).sum()) for sample in samples for part in sample.parts),
        bytes_per_subset=dict(subsets),
        drops=dict(drops),
        cuts={reason.value: count for reason, count in cuts.items()},
        examples=examples,
        judged=_judged(samples),
        subset=chunk.subset,
    )


def _judged(samples: Sequence[Sample]) -> dict[str, int]:
    signs = Counter(sample.sign for sample in samples if sample.sign)
    return {"good": signs[1], "bad": signs[-1]} if signs else {}


def encode_records(encoder: Encoder, records: Sequence[Record]) -> Iterator[list[Sample] | Dropped]:
    """Each record's samples or refusal, in order; conversations in a row are tokenised together."""
    for kind, group in groupby(records, key=type):
        some = list(group)
        if kind is Document:
            documents = encoder.documents(_only(Document, some))
            yield from (windows or Dropped(DropReason.EMPTY) for windows in documents)
            continue
        samples = (
            encoder.conversations(_only(Conversation, some))
            if kind is Conversation
            else judged_samples(encoder, _only(Comparison if kind is Comparison else Judgement, some))
        )
        yield from (sample if isinstance(sample, Dropped) else [sample] for sample in samples)


def _only(kind: type[Kind], records: Iterable[Record]) -> Iterator[Kind]:
    for record in records:
        assert isinstance(record, kind), record
        yield record
