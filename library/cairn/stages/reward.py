"""Reward modelling (Bradley and Terry 1952; Ouyang et al. 2022): a head of one number on the model, trained so that the
better answer scores higher.

The score is read at an answer's last token. The result is a sequence-classification model of one label, as transformers
and PEFT save it, or a LoRA with its head.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field

from cairn.config.section import Section
from cairn.data.batch import Batch
from cairn.losses.calibration import PREFIX as BIN_PREFIX
from cairn.losses.calibration import calibration_metrics, expected_calibration_error
from cairn.losses.ranking import bradley_terry, order_metrics
from cairn.metrics import Metric
from cairn.models.attention import forward_inputs
from cairn.models.scores import scores_at
from cairn.stages._answers import Pair, PairStage, answers_of, pair_output, pair_weights
from cairn.stages.base import LossOutput, Models


class Reward(PairStage):
    """−log σ(s_c − s_r − margin) + c·(s_c + s_r)², counted per pair, a ranking's counting 1 together."""

    head = "score"

    class Config(Section):
        """What is added to the order of the scores."""

        use_margin: bool = Field(True, description="ask for a record's own margin, where it has one")
        centring: float = Field(0.01, ge=0, description="draws the mean of the two scores to 0; 0 leaves it free")

    config: Config

    def loss(self, batch: Batch, models: Models) -> LossOutput:
        """Σ over the pairs, in nats."""
        answers, weights = answers_of(batch), pair_weights(batch)
        inputs = forward_inputs(batch.tokens, batch.segments, batch.positions, models.policy, prefixes=batch.prefixes)
        scores = Pair.of(scores_at(models.policy, inputs, answers.ends), answers)
        margin: torch.Tensor | float = answers.margins[answers.signs > 0] if self.config.use_margin else 0.0
        losses = bradley_terry(scores.chosen, scores.rejected, margin=margin, centring=self.config.centring)
        means = {
            f"score_{name}": Metric(float((values.detach() * weights).sum()), float(weights.sum()))
            for name, values in (("chosen", scores.chosen), ("rejected", scores.rejected))
        }
        order = order_metrics(scores.chosen, scores.rejected, weights)
        return pair_output(batch, losses, order | calibration_metrics(scores.chosen, scores.rejected, weights) | means)

    def figures(self, metrics: Mapping[str, Metric]) -> dict[str, float]:
        """The bins of confidence become one `calibration_error`."""
        plain = {name: metric for name, metric in metrics.items() if not name.startswith(BIN_PREFIX)}
        return {**super().figures(plain), "calibration_error": expected_calibration_error(metrics)}
