"""Token shards: rows as Arrow IPC files, read by memory map, any row in O(1).

A row keeps each segment's n+1 tokens side by side; inputs, labels, segments and positions follow from the lengths.
Weights are left out where all are 1 (pretraining), so such a row takes 4 bytes a token, and verdicts where there are
none. A shard file appears under its name whole or not at all.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa

from cairn.data.manifest import Manifest
from cairn.data.packing import assembled
from cairn.data.rows import Row, Verdicts
from cairn.errors import DataError

ROWS_PER_BATCH = 256
SCHEMA = pa.schema(
    [
        pa.field("tokens", pa.list_(pa.int32()), nullable=False),
        pa.field("weights", pa.list_(pa.float32())),
        pa.field("lengths", pa.list_(pa.int32()), nullable=False),
        pa.field("source_bytes", pa.list_(pa.int64()), nullable=False),
        pa.field("sources", pa.list_(pa.string()), nullable=False),
        pa.field("prefixes", pa.list_(pa.int32())),
        pa.field("signs", pa.list_(pa.int8())),
        pa.field("margins", pa.list_(pa.float32())),
        pa.field("importances", pa.list_(pa.float32())),
    ]
)
VERDICTS = ("prefixes", "signs", "margins", "importances")


class ShardWriter:
    """Writes rows to `path` within a `with`; the file appears at the end, unless an exception ended it.

    `rows` and `file_bytes` say what was written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = self.file_bytes = 0
        self._staging = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        self._pending: list[dict[str, object]] = []

    def __enter__(self) -> ShardWriter:
        self._sink = pa.OSFile(str(self._staging), "wb")
        self._writer = pa.ipc.new_file(self._sink, SCHEMA)
        return self

    def write(self, row: Row) -> None:
        """Append one row."""
        lengths = np.bincount(row.segments)[1:]
        ends = lengths.cumsum()
        last = ends + np.arange(len(ends))
        tokens, inputs = np.empty(len(row) + len(ends), dtype=np.int32), np.ones(len(row) + len(ends), dtype=bool)
        inputs[last] = False
        tokens[inputs], tokens[last] = row.tokens, row.labels[ends - 1]
        self._pending.append(
            {
                "tokens": tokens,
                "weights": None if np.all(row.weights == 1) else row.weights,
                "lengths": lengths.astype(np.int32),
                "source_bytes": row.source_bytes,
                "sources": list(row.sources),
                **{name: getattr(row.verdicts, name, None) for name in VERDICTS},
            }
        )
        self.rows += 1
        if len(self._pending) == ROWS_PER_BATCH:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            self._writer.write_batch(pa.RecordBatch.from_pylist(self._pending, schema=SCHEMA))
            self._pending = []

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._flush()
                self._writer.close()
                self._sink.close()
                self.file_bytes = self._staging.stat().st_size
                self._staging.replace(self.path)
        finally:
            self._sink.close()
            self._staging.unlink(missing_ok=True)


class TokenShards:
    """The rows of a prepared folder: `len(shards)`, `shards[i]`. Opens files when first needed."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self.fingerprint = manifest.fingerprint
        self._ends = np.cumsum([shard.rows for shard in manifest.shards])
        self._readers: dict[int, pa.ipc.RecordBatchFileReader] = {}

    @classmethod
    def open(cls, folder: Path | str) -> TokenShards:
        """The shards in `folder`; a DataError where the manifest or a shard file is missing or of another size."""
        folder = Path(folder)
        manifest = Manifest.read(folder)
        for shard in manifest.shards:
            path = folder / shard.name
            size = os.path.getsize(path) if path.exists() else None
            if size != shard.file_bytes:
                raise DataError(
                    f"the shard has {size} bytes, the manifest says {shard.file_bytes}",
                    where=str(path),
                    next_step="delete the folder and prepare again",
                )
        return cls(folder, manifest)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, index: int) -> Row:
        """Row `index` from 0; IndexError outside."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        shard = int(np.searchsorted(self._ends, index, side="right"))
        within = index - (int(self._ends[shard - 1]) if shard else 0)
        return row_at(self._reader(shard), within)

    def _reader(self, shard: int) -> pa.ipc.RecordBatchFileReader:
        if shard not in self._readers:
            self._readers[shard] = open_shard(self.folder / self.manifest.shards[shard].name)
        return self._readers[shard]

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_readers": {}}


def open_shard(path: Path) -> pa.ipc.RecordBatchFileReader:
    """One shard file by memory map, for `row_at`."""
    return pa.ipc.open_file(pa.memory_map(str(path)))


def row_at(shard: pa.ipc.RecordBatchFileReader, index: int) -> Row:
    """Row `index` from 0 of one shard file."""
    return _row(shard.get_batch(index // ROWS_PER_BATCH), index % ROWS_PER_BATCH)


def _row(batch: pa.RecordBatch, index: int) -> Row:
    def values(name: str) -> np.ndarray:
        return np.asarray(batch.column(name)[index].values)

    lengths = values("lengths")
    tokens = values("tokens")
    ends = np.cumsum(lengths + 1)
    inputs, labels = np.ones(len(tokens), dtype=bool), np.ones(len(tokens), dtype=bool)
    inputs[ends - 1] = False
    labels[ends - lengths - 1] = False
    weighted, judged = (batch.column(name)[index].is_valid for name in ("weights", VERDICTS[0]))
    return assembled(
        tokens=tokens[inputs],
        labels=tokens[labels],
        weights=values("weights") if weighted else np.ones(len(tokens) - len(lengths), dtype=np.float32),
        lengths=lengths,
        source_bytes=values("source_bytes"),
        sources=tuple(batch.column("sources")[index].as_py()),
        verdicts=Verdicts(**{name: values(name) for name in VERDICTS}) if judged else None,
    )
