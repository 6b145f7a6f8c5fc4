"""A recipe's files become token shards, once for one fingerprint, over Ray Data or in this process.

One reading task a file cuts records into chunks (Pile shards are one zstd frame, so a file cannot be split);
encoding and packing run a task per chunk over the cluster; memory is bounded by the chunks in flight. Shards are
gathered in a staging folder that takes its final name at the end, with the manifest: whole or absent. The folder lies
under the data home, which every node must see.
"""

from __future__ import annotations

import logging
import pickle
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from cairn.config.recipe import Recipe
from cairn.data.chunks import Chunk, Reading, Shaping, read_chunks, write_chunk
from cairn.data.manifest import MANIFEST, ChunkSummary, Manifest
from cairn.data.named_templates import choose_template
from cairn.data.plan import Plan, make_plan
from cairn.data.sources.location import Location
from cairn.errors import CairnError, StorageError, UserError
from cairn.plugins import STAGES
from cairn.records import Document

Progress = Callable[[int, int], None]
"""(bytes of the files whose records are encoded, bytes of all files)."""

Done = tuple[ChunkSummary, int, int]
"""A finished chunk, its file, and how far into that file it reaches in bytes."""


@dataclass(frozen=True)
class Prepared:
    """`train` is the folder of token shards, `validation` the held-out files as they are."""

    train: Path
    validation: tuple[Location, ...]
    manifest: Manifest


def prepare(recipe: Recipe, *, tokenizer: Any = None, on_progress: Progress | None = None) -> Prepared:
    """Token shards of `recipe.data.train` by Ray Data, or from the cache. The caller is connected to Ray.

    `tokenizer`: the model's, when it is loaded already. Raises UserError for data that does not fit, StorageError
    for storage that fails.
    """
    return _prepare(recipe, tokenizer, on_progress, _over_ray)


def prepare_local(recipe: Recipe, *, tokenizer: Any = None, on_progress: Progress | None = None) -> Prepared:
    """The same shards, bit for bit, made in this process without Ray."""
    return _prepare(recipe, tokenizer, on_progress, _in_process)


def _prepare(
    recipe: Recipe,
    tokenizer: Any,
    on_progress: Progress | None,
    carry_out: Callable[[Plan, Path], Iterator[Done]],
) -> Prepared:
    plan = make_plan(recipe, tokenizer if tokenizer is not None else load_tokenizer_of(recipe))
    report = on_progress or (lambda done, total: None)
    if not (plan.folder / MANIFEST).exists():
        _build(plan, report, carry_out)
    report(sum(plan.sizes), sum(plan.sizes))
    return Prepared(plan.folder, plan.validation, Manifest.read(plan.folder))


def load_tokenizer_of(recipe: Recipe) -> Any:
    """The tokenizer that a recipe encodes and trains with, `data.template` in it. Raises ModelError and UserError."""
    from cairn.models.load import load_tokenizer

    model, template = recipe.model, recipe.data.template
    tokenizer = load_tokenizer(model.path, model.revision, trust_remote_code=model.trust_remote_code)
    if STAGES.load(recipe.stage.name).record is not Document:
        choose_template(tokenizer, template, where=model.path)
    elif template is not None:
        raise UserError(
            f"the stage '{recipe.stage.name}' eats plain documents, which have no chat template",
            where="data.template",
            next_step="leave it out",
        )
    return tokenizer


def _build(plan: Plan, report: Progress, carry_out: Callable[[Plan, Path], Iterator[Done]]) -> None:
    staging = plan.folder.with_name(f"{plan.fingerprint}.{uuid.uuid4().hex}.partial")
    try:
        staging.mkdir(parents=True)
        summaries = []
        reached = [0] * len(plan.readings)
        for summary, file_index, bytes_read in carry_out(plan, staging):
            summaries.append(summary)
            reached[file_index] = max(reached[file_index], bytes_read)
            report(sum(reached), sum(plan.sizes))
        plan.manifest(summaries).write(staging)
        _publish(staging, plan.folder)
    except OSError as error:
        raise StorageError(
            f"the token shards cannot be written ({error})",
            where=str(plan.folder),
            next_step="free space there, or point CAIRN_HOME elsewhere",
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _publish(staging: Path, folder: Path) -> None:
    for leftover in staging.glob(".*"):
        leftover.unlink()
    try:
        staging.rename(folder)
    except OSError:
        if not (folder / MANIFEST).exists():
            raise


def _in_process(plan: Plan, folder: Path) -> Iterator[Done]:
    for reading in plan.readings:
        for chunk in read_chunks(reading):
            yield write_chunk(chunk, folder, plan.tokenizer, plan.shaping), chunk.file_index, chunk.bytes_read


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
