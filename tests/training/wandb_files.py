"""Reading what wandb wrote offline: LevelDB's log format (blocks of 32 KiB), a record of protobuf in each entry."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK, HEADER, ENTRY = 32768, 7, 7
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def entries(path: Path) -> Iterator[bytes]:
    """The records of a `.wandb` file, as bytes."""
    data, at, parts = path.read_bytes(), HEADER, b""
    assert data[:4] == b":W&B"
    while at + ENTRY <= len(data):
        left = BLOCK - at % BLOCK
        if left < ENTRY:
            at += left
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + ENTRY])
        parts += data[at + ENTRY : at + ENTRY + size]
        at += ENTRY + size
        if kind in (FULL, LAST):
            yield parts
            parts = b""


def history(folder: Path) -> list[dict[str, Any]]:
    """The logged rows of all offline runs in `folder`, in the order in which the runs began."""
    from wandb.proto import wandb_internal_pb2

    rows = []
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for entry in entries(path):
            record = wandb_internal_pb2.Record.FromString(entry)
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
                rows.append({**row, "step": record.history.step.num})
    return rows
