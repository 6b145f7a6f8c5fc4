"""Supervised fine-tuning: learn to give the answers of a conversation, given everything before them.

Which tokens those are is settled in `cairn.data.encoding`; a message's own weight scales its tokens. Where the
loss is no plain cross-entropy, the metric `nll` is.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field

from cairn.config.section import Section
from cairn.data.batch import Batch
from cairn.losses.cross_entropy import token_nll, weighted_sum
from cairn.losses.distillation import distillation
from cairn.losses.token_weights import dft_weights, eaft_weights
from cairn.metrics import Metric
from cairn.models.noise import noisy_embeddings
from cairn.records import Conversation
from cairn.stages._next_token import wanted_logits, wanted_nll, wanted_positions
from cairn.stages.base import LossOutput, Models, Stage


class Sft(Stage):
    """Cross-entropy on what the assistant says, its end of turn included; everything else weighs nothing."""

    record = Conversation

    class Config(Section):
        """What a token counts, and what is mixed into the plain cross-entropy."""

        counted: Literal["tokens", "samples"] = Field(
            "tokens", description="tokens: every token counts alike; samples: every conversation does"
        )
        loss: Literal["cross_entropy", "dft", "eaft"] = Field(
            "cross_entropy",
            description="dft weighs a token by its probability, eaft by the entropy of what could stand there",
        )
        eaft_alpha: float = Field(1.0, ge=0, description="exponent of the entropy under eaft")
        label_smoothing: float = Field(0.0, ge=0, lt=1, description="share of the target spread over the vocabulary")
        neftune_alpha: float = Field(
            0.0, ge=0, description="noise on the embeddings while training (NEFTune), 5 for instance"
        )
        teacher: str | None = Field(None, description="path of a model of the same vocabulary to distil from")
        teacher_weight: float = Field(0.5, ge=0, le=1, description="share of the teacher in the loss")
        teacher_temperature: float = Field(1.0, gt=0, description="softens teacher and student alike")
        teacher_divergence: float = Field(
            0.0, ge=0, le=1, description="0: KL(teacher ‖ student), 1: the reverse, between: Jensen–Shannon"
        )

    config: Config

    @property
    def reference(self) -> str | None:
        """The teacher."""
        return self.config.teacher

    def weight(self, batch: Batch) -> float:
        """Tokens by their weight, or conversations."""
        return float(self._weights(batch).sum())

    def loss(self, batch: Batch, models: Models) -> LossOutput:
        """Σ weight · loss over the answers' tokens, in nats."""
        wanted = wanted_positions(batch)
        labels, tokens = batch.labels.flatten()[wanted], batch.weights.flatten()[wanted]
        weights = tokens if self.config.counted == "tokens" else self._weights(batch).flatten()[wanted]
        with noisy_embeddings(models.policy, batch.segments, alpha=self.config.neftune_alpha):
            if self._needs_logits:
                logits = wanted_logits(batch, models.policy, wanted)
                nll = token_nll(logits, labels)
                losses = self._of_logits(logits, labels, nll)
            else:
                nll = wanted_nll(batch, models.policy, wanted)
                losses = nll * dft_weights(nll) if self.config.loss == "dft" else nll
        if self.config.teacher is not None:
            assert models.reference is not None, "the stage asks for a teacher"
            with torch.no_grad():
                taught = wanted_logits(batch, models.reference, wanted)
            share = self.config.teacher_weight
            losses = (1 - share) * losses + share * distillation(
                logits, taught, temperature=self.config.teacher_temperature, beta=self.config.teacher_divergence
            )
        plain = {"nll": Metric(float(weighted_sum(nll.detach(), tokens)), float(tokens.sum()))}
        metrics = {} if losses is nll and weights is tokens else plain
        return LossOutput(weighted_sum(losses, weights), float(weights.sum()), metrics)

    @property
    def _needs_logits(self) -> bool:
        config = self.config
        return bool(config.label_smoothing) or config.loss == "eaft" or config.teacher is not None

    def _of_logits(self, logits: torch.Tensor, labels: torch.Tensor, nll: torch.Tensor) -> torch.Tensor:
        smoothing = self.config.label_smoothing
        losses = token_nll(logits, labels, label_smoothing=smoothing) if smoothing else nll
        if self.config.loss == "dft":
            return losses * dft_weights(nll)
        if self.config.loss == "eaft":
            return losses * eaft_weights(logits, alpha=self.config.eaft_alpha)
        return losses

    def _weights(self, batch: Batch) -> torch.Tensor:
        """What each label counts, float32 [rows, length]."""
        if self.config.counted == "tokens":
            return batch.weights
        sums = batch.weights.new_zeros(len(batch.weights), int(batch.segments.max()) + 1)
        sums.scatter_add_(1, batch.segments, batch.weights)
        return torch.where(batch.weights > 0, batch.weights / sums.gather(1, batch.segments).clamp(min=1e-30), 0.0)
