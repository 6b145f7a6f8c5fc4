"""What pretraining and supervised fine-tuning share: the logits of the weighted positions, and their cross-entropy.

Only the weighted positions get logits, so a conversation of which a tenth is answer pays a tenth of the head.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cairn.data.batch import Batch
from cairn.losses.cross_entropy import token_nll, weighted_sum
from cairn.models.attention import forward_inputs
from cairn.models.forward import logits_at
from cairn.stages.base import LossOutput, Models


def next_token_loss(batch: Batch, models: Models) -> LossOutput:
    """Σ weight · −log p(label | the tokens before it in its segment), in nats; counted per unit of weight."""
    wanted = wanted_positions(batch)
    nll = token_nll(wanted_logits(batch, models.policy, wanted), batch.labels.flatten()[wanted])
    weights = batch.weights.flatten()[wanted]
    return LossOutput(total=weighted_sum(nll, weights), weight=float(weights.sum()))


def wanted_positions(batch: Batch) -> torch.Tensor:
    """Flat indices of the positions that weigh, int64 [n]."""
    return batch.weights.flatten().nonzero().squeeze(1)


def wanted_logits(batch: Batch, model: Callable[..., Any], wanted: torch.Tensor) -> torch.Tensor:
    """The model's logits [n, vocabulary] at the flat positions `wanted`."""
    return logits_at(model, forward_inputs(batch.tokens, batch.segments, batch.positions, model), wanted)
