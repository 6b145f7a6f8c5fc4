"""A worker's micro-batches of the next global batch, with what their stage needs beside the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cairn.data.batch import Batch, collate
from cairn.data.cursor import Cursor, share
from cairn.data.mismatch import mismatched
from cairn.data.rows import Row

if TYPE_CHECKING:
    from cairn.training.run import Run


def next_batches(run: Run, cursor: Cursor) -> tuple[list[Batch], Cursor]:
    """The micro-batches, equally many on every worker, and the cursor after the global batch that they are a share of."""
    settings, session = run.recipe.training, run.session
    rows, cursor = run.feed.take(cursor, settings.global_batch)
    mine = share(range(len(rows)), rank=session.rank, world_size=session.world_size)
    size = settings.micro_batch
    places = [mine[start : start + size] for start in range(0, len(mine), size)]
    batches = [_batch(run, rows, part) for part in places]
    fillers = [_batch(run, rows, [0]).uncounted() for _ in range(run.engine.accumulation - len(batches))]
    return batches + fillers, cursor


def _batch(run: Run, numbers: Sequence[int], places: Sequence[int]) -> Batch:
    """The rows at `places` of the global batch whose row numbers are `numbers`."""
    mine = [numbers[place] for place in places]
    ahead = [run.ahead[number] for number in mine] if run.ahead is not None else None
    if not run.stage.mismatches:
        return batch_of(run, [run.feed[number] for number in mine], range(len(mine)), references=ahead)
    return batch_of(run, [run.feed[number] for number in numbers], places, references=ahead)


def batch_of(
    run: Run, rows: Sequence[Row], places: Sequence[int], *, references: Sequence[np.ndarray] | None = None
) -> Batch:
    """The rows at `places`; `rows` are all that are evaluated together, among which a prompt finds another's answer."""
    pad, length = run.tokenizer.pad_token_id, run.recipe.data.sequence_length
    mine = [rows[place] for place in places]
    batch = collate(mine, pad_token=pad, shared=run.shares_prompts, references=references)
    if not run.stage.mismatches:
        return batch
    return replace(batch, mismatched=collate(mismatched(rows, places, sequence_length=length), pad_token=pad))
