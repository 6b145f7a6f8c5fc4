"""What pretraining and supervised fine-tuning share: the cross-entropy of the weighted positions, or their logits.

Only the weighted positions get logits, so a conversation of which a tenth is answer pays a tenth of the head; and
where the cross-entropy is all that is asked for, some of them at a time (`cairn.models.head`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cairn.data.batch import Batch
from cairn.losses.cross_entropy import token_nll, weighted_sum
from cairn.models.attention import forward_inputs
from cairn.models.forward import logits_at
from cairn.models.head import losses_at
from cairn.stages.base import LossOutput, Models


def next_token_loss(batch: Batch, models: Models) -> LossOutput:
    """Σ weight · −log p(label | the tokens before it in its segment), in nats; counted per unit of weight."""
    wanted = wanted_positions(batch)
    nll = wanted_nll(batch, models.policy, wanted)
    weights = batch.weights.flatten()[wanted]
    return LossOutput(total=weighted_sum(nll, weights), weight=float(weights.sum()))


def wanted_positions(batch: Batch) -> torch.Tensor:
    """Flat indices of the positions that weigh, int64 [n]."""
    return batch.weights.flatten().nonzero().squeeze(1)


def wanted_nll(batch: Batch, model: Callable[..., Any], wanted: torch.Tensor) -> torch.Tensor:
    """−log p of the labels at the flat positions `wanted`, fp32 [n]."""
    inputs = forward_inputs(batch.tokens, batch.segments, batch.positions, model)
    return losses_at(model, inputs, wanted, batch.labels.flatten()[wanted], token_nll)


def wanted_logits(batch: Batch, model: Callable[..., Any], wanted: torch.Tensor) -> torch.Tensor:
    """The model's logits [n, vocabulary] at the flat positions `wanted`."""
    return logits_at(model, forward_inputs(batch.tokens, batch.segments, batch.positions, model), wanted)
