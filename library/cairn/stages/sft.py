"""Supervised fine-tuning: learn to give the answers of a conversation, given everything before them."""

from __future__ import annotations

from cairn.data.batch import Batch
from cairn.records import Conversation
from cairn.stages._next_token import next_token_loss
from cairn.stages.base import LossOutput, Models, Stage


class Sft(Stage):
    """Cross-entropy on what the assistant says, its end of turn included; everything else weighs nothing.

    Which tokens those are is settled in `cairn.data.encoding`; a message's own weight scales its tokens.
    """

    record = Conversation

    def loss(self, batch: Batch, models: Models) -> LossOutput:
        """Σ weight · nats over the answers' tokens."""
        return next_token_loss(batch, models)
