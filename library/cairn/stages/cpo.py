"""Contrastive preference optimisation (Xu et al. 2024, arXiv 2401.08417): DPO with a uniform reference, so without one,
and fine-tuning on the chosen answer beside it."""

from __future__ import annotations

import torch
from pydantic import Field

from cairn.config.section import Section
from cairn.losses.reference_free import cpo
from cairn.stages._answers import Pair, PairStage


class Cpo(PairStage):
    """−log σ(β·(lp_c − lp_r)) + α·(−lp_c / n_c), of sums; counted per pair."""

    class Config(Section):
        """Scale, and the weight of the fine-tuning."""

        beta: float = Field(0.1, gt=0, description="scale of the reward")
        sft_weight: float = Field(1.0, ge=0, description="α, weight of −log p per token of the chosen answer")
        label_smoothing: float = Field(0.0, ge=0, le=0.5, description="share of pairs taken to be the wrong way round")

    config: Config

    def compare(self, logps: Pair, counts: Pair) -> tuple[torch.Tensor, Pair]:
        """Rewards are β·lp."""
        config = self.config
        losses = cpo(
            logps.chosen,
            logps.rejected,
            counts.chosen,
            beta=config.beta,
            sft_weight=config.sft_weight,
            label_smoothing=config.label_smoothing,
        )
        return losses, config.beta * logps
