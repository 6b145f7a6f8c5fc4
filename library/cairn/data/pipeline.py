"""A recipe's files become token shards, once for one fingerprint, or a live stream; over Ray or in this process.

One reading task a file cuts records into chunks (Pile shards are one zstd frame, so a file cannot be split);
encoding and packing run a task per chunk over the cluster; memory is bounded by the chunks in flight. Shards lie under
the data home, the chunks of a stream in its run's folder; every node must see both.
"""

from __future__ import annotations

import logging
import pickle
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from cairn.config.recipe import Recipe
from cairn.data.building import Done, Progress, build_shards, encode_in_process, write_in_process
from cairn.data.chunks import Chunk, Shaping, read_chunks, write_chunk
from cairn.data.manifest import MANIFEST, ChunkSummary, Manifest
from cairn.data.named_templates import choose_template
from cairn.data.plan import Plan, make_plan
from cairn.data.producer import Encode, Producer, Start
from cairn.data.reading import Reading
from cairn.data.spool import Spool
from cairn.errors import CairnError, UserError
from cairn.plugins import STAGES
from cairn.records import Document

STREAM = "stream"
"""The folder of a stream in its run's folder."""


@dataclass(frozen=True)
class Prepared:
    """`train` is the folder of token shards, `validation` what is evaluated, as it is."""

    train: Path
    validation: tuple[Reading, ...]
    manifest: Manifest


@dataclass(frozen=True)
class Streamed:
    """`train` is the spool that is being filled."""

    train: Path
    validation: tuple[Reading, ...]


def prepare(recipe: Recipe, *, tokenizer: Any = None, on_progress: Progress | None = None) -> Prepared:
    """Token shards of `recipe.data.train` by Ray Data, or from the cache. The caller is connected to Ray.

    `tokenizer`: the model's, when it is loaded already. Raises UserError for data that does not fit, StorageError
    for storage that fails.
    """
    return _prepare(recipe, tokenizer, on_progress, _over_ray)


def prepare_local(recipe: Recipe, *, tokenizer: Any = None, on_progress: Progress | None = None) -> Prepared:
    """The same shards, bit for bit, made in this process without Ray."""
    return _prepare(recipe, tokenizer, on_progress, write_in_process)


@contextmanager
def provided(recipe: Recipe, prepared: Prepared | None = None) -> Iterator[Prepared | Streamed]:
    """The data of `recipe` while the block trains on it: `prepared`, or prepared now; with `data.streaming` a stream
    that the cluster encodes meanwhile. The run's folder is the caller's.

    Raises UserError for data that does not fit; what turns up only while streaming is raised by those who train.
    """
    if recipe.data.streaming:
        with _streamed(recipe, partial(_encode_over_ray, recipe)) as streamed:
            yield streamed
    else:
        yield prepared or prepare(recipe)


@contextmanager
def provided_local(recipe: Recipe) -> Iterator[Prepared | Streamed]:
    """The same without Ray: a stream is encoded in a thread of this process."""
    if recipe.data.streaming:
        with _streamed(recipe, encode_in_process) as streamed:
            yield streamed
    else:
        yield prepare_local(recipe)


@contextmanager
def _streamed(recipe: Recipe, encoding: Callable[[Plan], Encode]) -> Iterator[Streamed]:
    """Of a run that is finished only the counts stay; of another one also what a later start goes on with."""
    plan = make_plan(recipe, load_tokenizer_of(recipe))
    spool = Spool(recipe.run_path / STREAM)
    producer = Producer(plan, recipe.data, spool, encoding(plan))
    producer.begin()
    try:
        yield Streamed(spool.folder, plan.validation)
    finally:
        producer.stop()
        if spool.is_finished():
            spool.clear()


def _prepare(
    recipe: Recipe,
    tokenizer: Any,
    on_progress: Progress | None,
    carry_out: Callable[[Plan, Path], Iterator[Done]],
) -> Prepared:
    plan = make_plan(recipe, tokenizer if tokenizer is not None else load_tokenizer_of(recipe))
    report = on_progress or (lambda done, total: None)
    if not (plan.folder / MANIFEST).exists():
        build_shards(plan, report, carry_out)
    report(sum(plan.sizes), sum(plan.sizes))
    return Prepared(plan.folder, plan.validation, Manifest.read(plan.folder))


def load_tokenizer_of(recipe: Recipe) -> Any:
    """The tokenizer that a recipe encodes and trains with, `data.template` in it. Raises ModelError and UserError."""
    from cairn.models.load import load_tokenizer

    model, template = recipe.model, recipe.data.template
    tokenizer = load_tokenizer(model.path, model.revision, trust_remote_code=model.trust_remote_code)
    if STAGES.load(recipe.stage.name, recipe.stage.source).record is not Document:
        choose_template(tokenizer, template, where=model.path)
    elif template is not None:
        raise UserError(
            f"the stage '{recipe.stage.name}' eats plain documents, which have no chat template",
            where="data.template",
            next_step="leave it out",
        )
    return tokenizer


def _over_ray(plan: Plan, folder: Path) -> Iterator[Done]:
    import ray
    from ray.data import DataContext

    files = [{"reading": msgspec.json.encode(reading)} for reading in plan.readings]
    tokenizer = ray.put(plan.tokenizer)
    with quiet(DataContext.get_current()):
        chunks = ray.data.from_items(files, override_num_blocks=len(files)).map_batches(
            _read_task, batch_size=1, batch_format="pyarrow"
        )
        write = partial(
            _write_task, folder=str(folder), shaping=plan.shaping, tokenizer=tokenizer, key=plan.fingerprint
        )
        for row in chunks.repartition(target_num_rows_per_block=1).map(write).iter_rows():
            if row["error"]:
                raise pickle.loads(row["error"])
            yield msgspec.json.decode(row["summary"], type=ChunkSummary), row["file_index"], row["bytes_read"]


def _encode_over_ray(recipe: Recipe, plan: Plan) -> Encode:
    """A task reads a file, ahead of others that encode its chunks; Ray Data would read on without an end.

    They reserve no CPUs, or they would wait for those of the trainers that wait for them. As many encode at once as the
    trainers leave CPUs, of several datasets each its part.
    """
    import ray

    taken = recipe.training.most_workers * recipe.training.cpus_per_worker
    at_once = max(2, int(ray.cluster_resources().get("CPU", 1) - taken) // len(set(plan.datasets)))
    tokenizer = [ray.put(plan.tokenizer)]
    read: Any = ray.remote(_stream_task).options(
        num_cpus=0, num_returns="streaming", _generator_backpressure_num_objects=at_once + 1
    )
    write = ray.remote(_encode_task).options(num_cpus=0, scheduling_strategy="SPREAD")

    def encode(starts: Sequence[Start], folder: Path) -> Iterator[ChunkSummary]:
        pending: deque[Any] = deque()
        for reading, first in starts:
            chunks = read.remote(reading, first)
            try:
                for chunk in chunks:
                    pending.append(write.remote(chunk, folder, plan.shaping, tokenizer, plan.fingerprint))
                    while len(pending) > at_once or (pending and ray.wait([pending[0]], timeout=0)[0]):
                        yield _result(pending.popleft())
            finally:
                ray.cancel(chunks)
        while pending:
            yield _result(pending.popleft())

    return encode


def _result(reference: Any) -> ChunkSummary:
    """What a task returned; an error of ours as it was raised there."""
    import ray

    try:
        summary: ChunkSummary = ray.get(reference)
        return summary
    except ray.exceptions.RayTaskError as failure:
        raise (failure.cause if isinstance(failure.cause, CairnError | OSError) else failure) from None


def _stream_task(reading: Reading, first: int) -> Iterator[bytes]:
    """The chunks of a file from number `first` on."""
    for chunk in islice(read_chunks(reading), first, None):
        yield msgspec.msgpack.encode(chunk)


def _encode_task(chunk: bytes, folder: Path, shaping: Shaping, tokenizer: list[Any], key: str) -> ChunkSummary:
    """Encode and write one chunk where this task runs."""
    decoded = msgspec.msgpack.decode(chunk, type=Chunk)
    return write_chunk(decoded, folder, _fetched(tokenizer[0], key), shaping)


@contextmanager
def quiet(context: Any) -> Iterator[None]:
    """Without Ray Data's own bars and plan: the caller shows progress."""
    log = logging.getLogger("ray.data")
    before = context.enable_progress_bars, log.level
    context.enable_progress_bars = False
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        context.enable_progress_bars = before[0]
        log.setLevel(before[1])


def _read_task(batch: Any) -> Iterator[Any]:
    """The chunks of the file that `batch` names, one to a table; an error travels as a row, not as a Ray failure."""
    import pyarrow as pa

    def table(chunk: bytes, error: bytes) -> Any:
        return pa.table({"chunk": pa.array([chunk], pa.large_binary()), "error": pa.array([error], pa.binary())})

    reading = msgspec.json.decode(batch["reading"][0].as_py(), type=Reading)
    try:
        for chunk in read_chunks(reading):
            yield table(msgspec.msgpack.encode(chunk), b"")
    except (CairnError, OSError) as error:
        yield table(b"", pickle.dumps(error))


def _write_task(row: dict[str, Any], *, folder: str, shaping: Shaping, tokenizer: Any, key: str) -> dict[str, Any]:
    """Encode and write one chunk where this task runs."""
    if row["error"]:
        return {"summary": b"", "file_index": 0, "bytes_read": 0, "error": row["error"]}
    chunk = msgspec.msgpack.decode(row["chunk"], type=Chunk)
    try:
        summary = write_chunk(chunk, Path(folder), _fetched(tokenizer, key), shaping)
    except (CairnError, OSError) as error:
        return {"summary": b"", "file_index": 0, "bytes_read": 0, "error": pickle.dumps(error)}
    encoded = msgspec.json.encode(summary)
    return {"summary": encoded, "file_index": chunk.file_index, "bytes_read": chunk.bytes_read, "error": b""}


_tokenizers: dict[str, Any] = {}
"""The tokenizer of the plan last worked on in this process: unpickling one takes longer than encoding a small chunk."""


def _fetched(reference: Any, key: str) -> Any:
    import ray

    if key not in _tokenizers:
        _tokenizers.clear()
        _tokenizers[key] = ray.get(reference)
    return _tokenizers[key]
