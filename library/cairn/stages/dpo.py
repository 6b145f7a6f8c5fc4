"""Direct preference optimisation (Rafailov et al. 2023, arXiv 2305.18290) and its relatives: the policy itself is the
reward model, r = β·(lp − ref), and learns from pairs which of two answers is the better.

`ref` is the policy at step 0, or another model; its log-probabilities can be computed once ahead. Each `loss` is a
formula of `cairn.losses.preference`, with its paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

import torch
from pydantic import Field, model_validator

from cairn.config.section import Section
from cairn.data.batch import Batch
from cairn.losses.preference import VARIANTS, sft_term, with_bco
from cairn.metrics import Metric
from cairn.stages._answers import (
    Pair,
    PairStage,
    answer_logps,
    answers_of,
    pair_output,
    preference_metrics,
    reference_logps,
    token_counts,
)
from cairn.stages.base import POLICY_AT_START, LossOutput, Models


class Dpo(PairStage):
    """Σ over pairs of the loss of h = (lp_c − ref_c) − (lp_r − ref_r), counted per pair."""

    class Config(Section):
        """Which loss, how strongly the policy is held to the reference, and what is added."""

        loss: Literal[
            "sigmoid", "sigmoid_norm", "robust", "hinge", "ipo", "exo", "bco", "nca", "sppo_hard", "apo_zero", "apo_down",
            "discopop",
        ] = Field("sigmoid", description="the formula")  # fmt: skip
        beta: float = Field(0.1, gt=0, description="how strongly the policy is held to the reference")
        label_smoothing: float = Field(0.0, ge=0, le=0.5, description="share of pairs taken to be the wrong way round")
        per_token: bool | None = Field(
            None, description="means over an answer's tokens instead of sums; none: ipo and sigmoid_norm"
        )
        ld_alpha: float = Field(
            1.0, ge=0, le=1, description="what tokens beyond the shorter answer's length count (LD-DPO)"
        )
        sft_weight: float = Field(0.0, ge=0, description="weight of −log p per token of the chosen answer")
        bco_weight: float = Field(0.0, ge=0, description="weight of the BCO term: (loss + w · bco) / (1 + w)")
        reference: str | None = Field(None, description="path of another reference model; none: the policy at step 0")
        precompute_reference: bool = Field(
            False, description="compute the reference's log-probabilities once, before the first step"
        )

        @model_validator(mode="after")
        def _means_something(self) -> Self:
            smoothed = "label_smoothing" in VARIANTS[self.loss].options
            if self.label_smoothing and not smoothed:
                raise ValueError(f"label_smoothing has no meaning for the loss '{self.loss}': leave it at 0")
            if self.loss == "exo" and not self.label_smoothing:
                raise ValueError(
                    "the loss 'exo' is infinite without label_smoothing: set it above 0, 1e-3 for instance"
                )
            if self.loss == "robust" and self.label_smoothing >= 0.5:
                raise ValueError("the loss 'robust' takes label_smoothing below 0.5")
            return self

    config: Config

    @property
    def reference(self) -> str:
        """The policy at step 0 unless the recipe names a model."""
        return self.config.reference or POLICY_AT_START

    @property
    def ahead(self) -> bool:
        """As the recipe says."""
        return self.config.precompute_reference

    @property
    def reference_settings(self) -> dict[str, float]:
        """How the tail of the longer answer counts."""
        return {"ld_alpha": self.config.ld_alpha}

    def reference_values(self, batch: Batch, models: Models) -> torch.Tensor:
        """Σ log p of each answer under the reference."""
        return reference_logps(batch, models, tail_weight=self.config.ld_alpha)

    def loss(self, batch: Batch, models: Models) -> LossOutput:
        """Σ over the pairs, in nats."""
        config, answers = self.config, answers_of(batch)
        counts = Pair.of(token_counts(batch), answers)
        logps = Pair.of(answer_logps(batch, models.policy, tail_weight=config.ld_alpha), answers)
        ratios = logps - Pair.of(self.reference_values(batch, models), answers)
        losses = self._preference(ratios, counts)
        if config.bco_weight:
            term = VARIANTS["bco"](ratios.chosen, ratios.rejected, beta=config.beta, delta=self._delta())
            losses = with_bco(losses, term, weight=config.bco_weight)
        if config.sft_weight:
            losses = losses + config.sft_weight * sft_term(logps.chosen, counts.chosen)
        return pair_output(batch, losses, preference_metrics(batch, config.beta * ratios, logps))

    def _preference(self, ratios: Pair, counts: Pair) -> torch.Tensor:
        config, variant = self.config, VARIANTS[self.config.loss]
        per_token = variant.per_token if config.per_token is None else config.per_token
        given = ratios / counts if per_token else ratios
        options = {"label_smoothing": config.label_smoothing, "delta": self._delta()}
        taken = {name: value for name, value in options.items() if name in variant.options}
        return variant(given.chosen, given.rejected, beta=config.beta, **taken)

    def after_step(self, metrics: Mapping[str, Metric]) -> None:
        """BCO's baseline: the running mean of all rewards so far."""
        both = metrics["reward_chosen"] + metrics["reward_rejected"]
        self.state["reward_sum"] = self.state.get("reward_sum", 0.0) + both.total
        self.state["answers"] = self.state.get("answers", 0.0) + both.weight

    def _delta(self) -> float:
        return Metric(self.state["reward_sum"], self.state["answers"]).value if self.state else 0.0
