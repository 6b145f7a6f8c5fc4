"""Kahneman–Tversky optimisation (Ethayarajh et al. 2024, arXiv 2402.01306): learning from answers that were each called
good or bad, without pairs; a preference set is read as two judgements a pair.

An answer is measured against z₀, what the policy gives to answers that belong to other prompts. z₀ is one number for
the global batch and is computed over it, all workers' part, before the first backward. One more forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from pydantic import Field

from cairn.config.section import Section
from cairn.data.batch import Batch
from cairn.errors import DataError
from cairn.losses.judgement import kl_baseline, kto
from cairn.metrics import Metric
from cairn.records import Judgement
from cairn.stages._answers import answer_logps, answers_of, reference_logps, token_counts
from cairn.stages.base import POLICY_AT_START, LossOutput, Models, Stage


class Kto(Stage):
    """Good: λ_D·(1 − σ(β(d − z₀))), bad: λ_U·(1 − σ(β(z₀ − d))), d = lp − ref; counted per answer."""

    record = Judgement

    class Config(Section):
        """How strongly the policy is held to the reference, and what good and bad answers count."""

        beta: float = Field(0.1, gt=0, description="how strongly the policy is held to the reference")
        desirable_weight: float = Field(1.0, ge=0, description="what a good answer counts")
        undesirable_weight: float = Field(
            1.0, ge=0, description="what a bad answer counts; choose the two so that good : bad is 1:1 to 4:3 in all"
        )
        reference: str | None = Field(None, description="path of another reference model; none: the policy at step 0")

    config: Config
    baseline: float
    """z₀ of the global batch at hand, nats."""

    @property
    def reference(self) -> str:
        """The policy at step 0 unless the recipe names a model."""
        return self.config.reference or POLICY_AT_START

    @property
    def mismatches(self) -> bool:
        """z₀ is of prompts with answers to others."""
        return True

    def weight(self, batch: Batch) -> float:
        """Answers."""
        return float(answers_of(batch).importances.sum())

    def before_step(self, batches: Sequence[Batch], models: Models, total: Callable[[float], float]) -> None:
        """z₀ over the global batch; a DataError where all its answers are to one prompt."""
        ratios = Metric(0.0, 0.0)
        for batch in batches:
            assert batch.mismatched is not None, "the loop brings them"
            weights = answers_of(batch.mismatched).importances
            with torch.no_grad():
                drawn = answer_logps(batch.mismatched, models.policy) - reference_logps(batch.mismatched, models)
            ratios += Metric(float((drawn * weights).sum()), float(weights.sum()))
        summed, count = total(ratios.total), total(ratios.weight)
        if not count:
            raise DataError(
                "all answers of the global batch are to one prompt: there is no baseline to measure them against",
                where=str(batches[0].sources[:1]),
                next_step="raise training.global_batch, or leave data.packing on",
            )
        self.baseline = kl_baseline(summed, count)

    def loss(self, batch: Batch, models: Models) -> LossOutput:
        """Σ over the answers."""
        config, answers = self.config, answers_of(batch)
        good, weights = answers.signs > 0, answers.importances
        logps = answer_logps(batch, models.policy)
        ratios = logps - reference_logps(batch, models)
        losses = kto(
            ratios,
            good,
            baseline=self.baseline,
            beta=config.beta,
            desirable_weight=config.desirable_weight,
            undesirable_weight=config.undesirable_weight,
        )
        weight = float(weights.sum())
        metrics = self._metrics(batch, config.beta * ratios.detach(), logps.detach())
        return LossOutput((losses * weights).sum(), weight, metrics | {"kl": Metric(self.baseline * weight, weight)})

    def _metrics(self, batch: Batch, rewards: torch.Tensor, logps: torch.Tensor) -> dict[str, Metric]:
        """Rewards and log-probabilities of good and of bad answers, and how often a reward lies on its side of z₀."""
        answers = answers_of(batch)
        counts, weights = token_counts(batch), answers.importances
        right = ((rewards > self.config.beta * self.baseline) == (answers.signs > 0)).float()
        found = {"accuracy": Metric(float((right * weights).sum()), float(weights.sum()))}
        for name, mask in (("chosen", answers.signs > 0), ("rejected", answers.signs < 0)):
            mine, counted = weights * mask, ((weights > 0) & mask).float()
            found[f"reward_{name}"] = Metric(float((rewards * mine).sum()), float(mine.sum()))
            found[f"logp_{name}"] = Metric(float((logps * counted).sum()), float((counts * counted).sum()))
        return found
