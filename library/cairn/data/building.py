"""Chunks become a folder of token shards, whole or absent: it is built beside its place and then takes its name.

What needs no cluster: the folder, and making the chunks in this process. `pipeline.py` makes them over Ray.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from cairn.data.chunks import read_chunks, write_chunk
from cairn.data.manifest import MANIFEST, ChunkSummary
from cairn.data.plan import Plan
from cairn.data.producer import Encode, Start
from cairn.errors import StorageError

Progress = Callable[[int, int], None]
"""(bytes of the files whose records are encoded, bytes of all files)."""

Done = tuple[ChunkSummary, int, int]
"""A finished chunk, its file, and how far into that file it reaches in bytes."""


def build_shards(plan: Plan, report: Progress, carry_out: Callable[[Plan, Path], Iterator[Done]]) -> None:
    """Token shards of `plan` in its folder, of the chunks that `carry_out` writes into another one, in any order.

    Raises DataError where too little is usable, StorageError where the folder cannot be written.
    """
    staging = plan.folder.with_name(f"{plan.fingerprint}.{uuid.uuid4().hex}.partial")
    try:
        staging.mkdir(parents=True)
        summaries = []
        reached = [0] * len(plan.readings)
        for summary, file_index, bytes_read in carry_out(plan, staging):
            summaries.append(summary)
            reached[file_index] = max(reached[file_index], bytes_read)
            report(sum(reached), sum(plan.sizes))
        manifest = plan.manifest(summaries)
        plan.check(manifest)
        manifest.write(staging)
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


def write_in_process(plan: Plan, folder: Path) -> Iterator[Done]:
    """All chunks of `plan`."""
    for reading in plan.readings:
        for chunk in read_chunks(reading):
            yield write_chunk(chunk, folder, plan.tokenizer, plan.shaping), chunk.file_index, chunk.bytes_read


def encode_in_process(plan: Plan) -> Encode:
    """What a stream's producer asks for chunks, one at a time."""

    def encode(starts: Sequence[Start], folder: Path) -> Iterator[ChunkSummary]:
        for reading, first in starts:
            for chunk in islice(read_chunks(reading), first, None):
                yield write_chunk(chunk, folder, plan.tokenizer, plan.shaping)

    return encode
