"""Odds-ratio preference optimisation (Hong et al. 2024, arXiv 2403.07691): fine-tuning on the chosen answer, and beside
it a push of its odds over the rejected one's. No reference model."""

from __future__ import annotations

import torch
from pydantic import Field

from cairn.config.section import Section
from cairn.losses.reference_free import orpo
from cairn.stages._answers import Pair, PairStage


class Orpo(PairStage):
    """−p̄_c − β·log σ(log odds(p̄_c) − log odds(p̄_r)), p̄ the mean log-probability of an answer's token; per pair."""

    class Config(Section):
        """How much the odds count beside the fine-tuning."""

        beta: float = Field(0.1, ge=0, description="weight of the odds ratio, the paper's λ")

    config: Config

    def compare(self, logps: Pair, counts: Pair) -> tuple[torch.Tensor, Pair]:
        """Rewards are β·p̄."""
        beta = self.config.beta
        losses = orpo(logps.chosen, logps.rejected, counts.chosen, counts.rejected, beta=beta)
        return losses, beta * (logps / counts)
