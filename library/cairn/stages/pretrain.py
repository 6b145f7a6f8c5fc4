"""Continued pretraining: learn plain text, every token of it."""

from __future__ import annotations

from cairn.data.batch import Batch
from cairn.records import Document
from cairn.stages._next_token import next_token_loss
from cairn.stages.base import LossOutput, Models, Stage


class Pretrain(Stage):
    """Cross-entropy on every token of a document and on its end; a long document is consecutive windows."""

    record = Document

    def loss(self, batch: Batch, models: Models) -> LossOutput:
        """Σ nats over all tokens."""
        return next_token_loss(batch, models)
