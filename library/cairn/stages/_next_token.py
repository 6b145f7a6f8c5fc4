"""The loss that pretraining and supervised fine-tuning share: next-token cross-entropy on the weighted positions.

Only the weighted positions get logits, so a conversation of which a tenth is answer pays a tenth of the head.
"""

from __future__ import annotations

from cairn.data.batch import Batch
from cairn.losses.cross_entropy import token_nll, weighted_sum
from cairn.models.attention import forward_inputs
from cairn.models.forward import logits_at
from cairn.stages.base import LossOutput, Models


def next_token_loss(batch: Batch, models: Models) -> LossOutput:
    """Σ weight · −log p(label | the tokens before it in its segment), in nats; counted per unit of weight."""
    inputs = forward_inputs(batch.tokens, batch.segments, batch.positions, models.policy)
    labels, weights = batch.labels.flatten(), batch.weights.flatten()
    wanted = weights.nonzero().squeeze(1)
    nll = token_nll(logits_at(models.policy, inputs, wanted), labels[wanted])
    return LossOutput(total=weighted_sum(nll, weights[wanted]), weight=float(weights.sum()))
