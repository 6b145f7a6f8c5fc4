"""A worker's micro-batches of the next global batch, with what their stage needs beside the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cairn.data.batch import Batch, collate
from cairn.data.cursor import Cursor, share
from cairn.data.mismatch import mismatched
from cairn.training.run import Run


def next_batches(run: Run, cursor: Cursor) -> tuple[list[Batch], Cursor]:
    """The micro-batches, and the cursor after the global batch that they are a share of."""
    settings, session = run.recipe.training, run.session
    rows, cursor = run.feed.take(cursor, settings.global_batch)
    mine = share(range(len(rows)), rank=session.rank, world_size=session.world_size)
    size = settings.micro_batch
    places = [mine[start : start + size] for start in range(0, len(mine), size)]
    return [_batch(run, rows, part) for part in places], cursor


def _batch(run: Run, rows: Sequence[int], places: Sequence[int]) -> Batch:
    """The rows at `places` of the global batch whose row numbers are `rows`."""
    pad = run.tokenizer.pad_token_id
    numbers = [rows[place] for place in places]
    batch = collate(
        [run.feed[number] for number in numbers],
        pad_token=pad,
        shared=run.shares_prompts,
        references=[run.ahead[number] for number in numbers] if run.ahead is not None else None,
    )
    if not run.stage.mismatches:
        return batch
    length = run.recipe.data.sequence_length
    others = mismatched([run.feed[number] for number in rows], places, sequence_length=length)
    return replace(batch, mismatched=collate(others, pad_token=pad))
