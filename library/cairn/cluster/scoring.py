"""What runs where in an evaluation: reading and tokenising tasks, scoring actors, and how many of them.

A row is msgpack in a binary column, since Ray Data's own conversions would strip zero bytes and infer types. What Cairn
refuses in a worker travels as a row too: Ray would log it with a page of its own frames, and pass on only the text.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import ray

from cairn.data.documents import read_documents
from cairn.data.sources.location import Location
from cairn.errors import CairnError
from cairn.evaluation.pieces import Piece, ScoredPiece, items, pieces
from cairn.evaluation.subject import Subject
from cairn.records import Document

CHUNK_CHARACTERS = 500_000
"""Text that one tokenising task takes at least, a longer document alone."""
CPUS_PER_ACTOR = 4
"""Beyond this many threads, small models gain little; a second copy of the model gains more."""
READING_SHARE = 0.25
"""Of the CPUs; the rest is reserved by actors, so that reading never waits for a place."""
TASKS_PER_ACTOR = 4
"""Reading and tokenising tasks that fit into that share at once: a paused one keeps its place."""

COLUMN, REFUSAL = "packed", "refusal"


def pack(value: Any) -> pa.Table:
    """A table of one row."""
    return _row(msgspec.msgpack.encode(value), refusal=False)


def pack_refusal(error: CairnError) -> pa.Table:
    """A table of one row that raises `error` wherever it is unpacked."""
    return _row(pickle.dumps(error), refusal=True)


def unpack(table: pa.Table, kind: Any = list[ScoredPiece]) -> Iterator[Any]:
    """The rows of a table of `pack`, each as `kind`; raises the CairnError of a row of `pack_refusal`."""
    for value, refusal in zip(table[COLUMN], table[REFUSAL], strict=True):
        if refusal.as_py():
            raise pickle.loads(value.as_py())
        yield msgspec.msgpack.decode(value.as_py(), type=kind)


def _row(packed: bytes, *, refusal: bool) -> pa.Table:
    return pa.table({COLUMN: pa.array([packed], pa.large_binary()), REFUSAL: pa.array([refusal])})


@dataclass(frozen=True)
class Read:
    """File names to chunks of documents."""

    format: str
    limit: int | None
    subsets: tuple[str, ...]

    def __call__(self, table: pa.Table) -> Iterator[pa.Table]:
        files = [Location(file) for file in table["file"].to_pylist()]
        documents = read_documents(files, self.format, self.limit, self.subsets)
        try:
            for chunk in _chunks(documents):
                yield pack(chunk)
        except CairnError as refusal:
            yield pack_refusal(refusal)


@dataclass(frozen=True)
class Encode:
    """Chunks of documents to items of pieces."""

    subject: Subject
    window: int

    def __call__(self, table: pa.Table) -> Iterator[pa.Table]:
        try:
            tokenizer = self.subject.load_tokenizer()
            for documents in unpack(table, list[Document]):
                for item in items(pieces(documents, tokenizer, window=self.window)):
                    yield pack(item)
        except CairnError as refusal:
            yield pack_refusal(refusal)


class Score:
    """Holds the model, loaded while the first text is read; items of pieces to scored pieces."""

    def __init__(self, subject: Subject, threads: int) -> None:
        self.refusal: CairnError | None = None
        try:
            self.model = _load(subject, threads)
        except CairnError as refusal:
            self.refusal = refusal

    def __call__(self, table: pa.Table) -> Iterator[pa.Table]:
        from cairn.evaluation.bits_per_byte import score_item

        try:
            if self.refusal is not None:
                raise self.refusal
            for item in unpack(table, list[Piece]):
                yield pack(score_item(self.model, item))
        except CairnError as refusal:
            yield pack_refusal(refusal)


def _load(subject: Subject, threads: int) -> Any:
    import torch

    if ray.get_gpu_ids():
        return subject.load("cuda")
    torch.set_num_threads(min(threads, os.cpu_count() or 1))
    return subject.load()


@dataclass(frozen=True)
class Plan:
    """Arguments of `map_batches` for the two kinds of task and for actors, and threads of an actor."""

    reading: dict[str, Any]
    encoding: dict[str, Any]
    actor: dict[str, Any]
    threads: int


def plan_actors(workers: int | None) -> Plan:
    """An actor a GPU; without GPUs one for each `CPUS_PER_ACTOR` CPUs of a node, reserving what is free now."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    gpus = int(sum(node.get("GPU", 0) for node in nodes))
    fitting = gpus or sum(max(1, int(node["CPU"] // CPUS_PER_ACTOR)) for node in nodes)
    count = workers or fitting
    cpus = sum(node["CPU"] for node in nodes)
    share = min(cpus / count, *(node["CPU"] for node in nodes))
    free = min(share, ray.available_resources().get("CPU", 0.0) / count)
    common: dict[str, Any] = {"batch_size": 1, "batch_format": "pyarrow"}
    actor = {
        **common,
        "num_cpus": max(0.1, round(free * (1 - READING_SHARE), 2)),
        "compute": ray.data.ActorPoolStrategy(min_size=1, max_size=count, initial_size=count),
    }
    if gpus:
        actor |= {"num_gpus": 1, "num_cpus": min(1.0, actor["num_cpus"])}
    task_cpus = min(1.0, READING_SHARE * share / TASKS_PER_ACTOR)
    return Plan(
        reading={**common, "num_cpus": task_cpus / 2},  # unlike encoding, so that Ray does not fuse the two
        encoding={**common, "num_cpus": task_cpus},
        actor=actor,
        threads=max(1, int(share)),
    )


def _chunks(documents: Iterable[Document]) -> Iterator[list[Document]]:
    chunk: list[Document] = []
    characters = 0
    for document in documents:
        chunk.append(document)
        characters += len(document.text)
        if characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk
