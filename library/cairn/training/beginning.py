"""A method's trainable model before the first step: attached, begun in the run's first rows, or begun again.

Every worker looks at the same rows, whatever its share of them will be. A run that is resumed does not look again: its
rows may be gone, and another machine rounds otherwise; the beginning is in the checkpoint's adapter.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch

from cairn.adapters.method import Method
from cairn.adapters.preview import Preview
from cairn.config.recipe import Recipe
from cairn.data.batch import collate
from cairn.data.cursor import Cursor
from cairn.data.documents import read_documents
from cairn.data.encoding import Encoder
from cairn.data.feed import Feed
from cairn.data.packing import row_of
from cairn.data.rows import Row
from cairn.models.attention import sees_prefixes
from cairn.stages.base import Models, Stage
from cairn.training.batches import batch_of
from cairn.training.folder import ADAPTER
from cairn.training.reference import Frozen
from cairn.training.session import Session


def begun(
    method: Method, model: Any, recipe: Recipe, stage: Stage, session: Session, feed: Feed, tokenizer: Any
) -> Any:
    """`method` over `model` as it stood before the run's first step; every worker calls it."""
    if not method.first_rows:
        return method.attach(model)
    with session.latest_checkpoint() as folder:
        if folder is not None:
            return method.begin_again(model, folder / ADAPTER)
    if method.first_documents:
        rows = _document_rows(method, tokenizer, recipe.data.sequence_length)
        size, pad = recipe.training.micro_batch, tokenizer.pad_token_id
        groups = [rows[start : start + size] for start in range(0, len(rows), size)]
        batches = [collate(group, pad_token=pad).to(session.device) for group in groups]
        return method.begin(model, Preview(batches, lambda policy: iter(())))
    return method.begin(model, _preview(method.first_rows, model, recipe, stage, session, feed, tokenizer))


def _document_rows(method: Method, tokenizer: Any, length: int) -> list[Row]:
    """The first of the method's own documents, a window a row."""
    documents = Encoder(tokenizer, length).documents(read_documents(method.first_documents, limit=method.first_rows))
    return [row_of([sample]) for samples in documents for sample in samples][: method.first_rows]


def _preview(
    count: int, model: Any, recipe: Recipe, stage: Stage, session: Session, feed: Feed, tokenizer: Any
) -> Preview:
    """The first `count` rows, or an epoch's where it has fewer; `model` is the policy at step 0, and so the reference."""
    wanted = min(count, feed.epoch_rows or count)
    numbers, _ = feed.take(Cursor(seed=recipe.training.seed, fingerprint=feed.fingerprint), wanted)
    run: Any = SimpleNamespace(recipe=recipe, stage=stage, tokenizer=tokenizer, shares_prompts=sees_prefixes(model))
    rows, size = [feed[number] for number in numbers], recipe.training.micro_batch
    places = [range(start, min(start + size, wanted)) for start in range(0, wanted, size)]
    batches = [batch_of(run, rows, part).to(session.device) for part in places]

    def losses(policy: Any) -> Iterator[torch.Tensor]:
        models = Models(policy, Frozen(model))
        stage.before_step(batches, models, float)
        for batch in batches:
            yield stage.loss(batch, models).total

    return Preview(batches, losses)
