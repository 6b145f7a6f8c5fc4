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


class Chunk(msgspec.Struct):
    """Some records of one file. `bytes_read` is how far into the file on disk reading had come."""

    file_index: int
    index: int
    records: list[Record]
    drops: dict[str, int]
    examples: dict[str, list[str]]
    bytes_read: int

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
    """The chunks of one file, in order; at least one, so that its counts are kept. DataError for another kind."""
    position = 0

    def remember(read: int) -> None:
        nonlocal position
        position = read

    records: list[Record] = []
    drops: Counter[str] = Counter()
    examples: dict[str, list[str]] = {}
    index = characters = 0
    for record in records_of(reading, on_bytes=remember):
        if isinstance(record, Rejected):
            note(drops, examples, record.reason, f"{record.source}: {record.detail}")
        else:
            wanted = converted(record, reading.kind, reading.train_on)
            if wanted is None:
                raise DataError(
                    f"a {reading.kind} is needed, this is a {kind_of_record(record)}", where=str(record.source)
                )
            records.extend(wanted)
            characters += _size(record)
        if len(records) + drops.total() >= CHUNK_RECORDS or characters >= CHUNK_CHARACTERS:
            yield Chunk(reading.file_index, index, records, dict(drops), examples, position)
            records, drops, examples, characters, index = [], Counter(), {}, 0, index + 1
    if records or drops or index == 0:
        yield Chunk(reading.file_index, index, records, dict(drops), examples, position)


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
