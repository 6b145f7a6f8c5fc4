"""The reference's log-probabilities of every answer, computed once before the first step and kept beside the rows.

They depend on the rows, the reference and how tokens are counted, not on the stage's other knobs, so a search over
`beta` computes them once. Cost: one forward pass over all rows, shared by the workers; 4 bytes an answer.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from cairn.config.recipe import Recipe
from cairn.data.batch import collate
from cairn.data.feed import Prepared
from cairn.data.fingerprint import file_sha256
from cairn.models.attention import sees_prefixes
from cairn.models.identity import base_sha256
from cairn.stages.base import Models, Stage
from cairn.training.session import Session
from cairn.training.start import Start

CODE_VERSION = 1


@dataclass(frozen=True)
class Ahead:
    """`values` float32 [all answers], those of row i from `ends[i - 1]` to `ends[i]`; nats."""

    values: np.ndarray
    ends: np.ndarray

    def __getitem__(self, row: int) -> np.ndarray:
        """Row `row`'s, float32 [answers of the row]."""
        return np.asarray(self.values[self.ends[row - 1] if row else 0 : self.ends[row]])


def computed_ahead(
    stage: Stage,
    model: Any,
    reference: Any,
    feed: Prepared,
    recipe: Recipe,
    start: Start | None,
    session: Session,
    *,
    pad_token: int,
) -> Ahead:
    """From the folder of the rows, where it was computed before, else computed by all workers and kept there.

    model: the policy before its first step, not yet under an engine; reference: of `cairn.training.reference`.
    """
    path = feed.shards.folder / f"reference-{_key(stage, recipe, start)}.npz"
    if not _agreed(path.exists()):
        mine = dict(_rows(stage, Models(model, reference), feed, recipe, session, pad_token))
        gathered: list[Any] = [None] * session.world_size
        dist.all_gather_object(gathered, mine)
        found = {row: values for part in gathered for row, values in part.items()}
        if session.rank == 0:
            _write(path, [found[row] for row in range(len(feed.shards))])
        dist.barrier()
    with np.load(path) as kept:
        return Ahead(kept["values"], kept["ends"])


def _rows(
    stage: Stage, models: Models, feed: Prepared, recipe: Recipe, session: Session, pad_token: int
) -> Iterator[tuple[int, np.ndarray]]:
    """This worker's rows and their answers' values."""
    mine = range(session.rank, len(feed.shards), session.world_size)
    shared = sees_prefixes(models.policy)
    for row in mine:
        batch = collate([feed[row]], pad_token=pad_token, shared=shared).to(session.device)
        with torch.no_grad():
            yield row, stage.reference_values(batch, models).float().cpu().numpy()


def _write(path: Path, rows: list[np.ndarray]) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("wb") as file:
        np.savez(file, values=np.concatenate(rows), ends=np.cumsum([len(row) for row in rows]))
    draft.replace(path)


def _agreed(there: bool) -> bool:
    """Whether all workers see it: one that came late to a file being written must not wait alone."""
    seen: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(seen, there)
    return all(seen)


def _key(stage: Stage, recipe: Recipe, start: Start | None) -> str:
    """Everything that the values depend on beside the rows."""
    files = sorted(start.folder.glob("*.safetensors")) if start is not None else []
    parts = {
        "code": CODE_VERSION,
        "base": base_sha256(recipe.model.path, recipe.model.revision),
        "adapter": [file_sha256(file) for file in files],
        "other": base_sha256(stage.reference) if stage.reference else None,
        "precision": recipe.training.precision,
        "counted": stage.reference_settings,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
