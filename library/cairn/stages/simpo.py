"""Simple preference optimisation (Meng et al. 2024, arXiv 2405.14734): the reward is the mean log-probability of an
answer's token, and the chosen answer must win by a margin. No reference model."""

from __future__ import annotations

import torch
from pydantic import Field

from cairn.config.section import Section
from cairn.losses.preference import sft_term
from cairn.losses.reference_free import simpo
from cairn.stages._answers import Pair, PairStage


class Simpo(PairStage):
    """−log σ(β·(p̄_c − p̄_r) − γ), p̄ the mean log-probability of an answer's token; counted per pair."""

    class Config(Section):
        """Scale, margin, and what is added."""

        beta: float = Field(2.0, gt=0, description="scale of the reward")
        gamma: float = Field(0.5, ge=0, description="by how much the chosen answer's reward must be higher")
        label_smoothing: float = Field(0.0, ge=0, le=0.5, description="share of pairs taken to be the wrong way round")
        sft_weight: float = Field(0.0, ge=0, description="weight of −log p per token of the chosen answer (CPO-SimPO)")

    config: Config

    def compare(self, logps: Pair, counts: Pair) -> tuple[torch.Tensor, Pair]:
        """Rewards are β·p̄."""
        config = self.config
        losses = simpo(
            logps.chosen,
            logps.rejected,
            counts.chosen,
            counts.rejected,
            beta=config.beta,
            gamma=config.gamma,
            label_smoothing=config.label_smoothing,
        )
        losses = losses + config.sft_weight * sft_term(logps.chosen, counts.chosen)
        return losses, config.beta * (logps / counts)
