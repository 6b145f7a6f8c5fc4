"""Warm-up, then half a cosine down to a floor (Loshchilov and Hutter 2017, arXiv 1608.03983, one cycle)."""

from __future__ import annotations

import math

from pydantic import Field

from cairn.schedules.base import Schedule, WarmUp


class Cosine(Schedule):
    """factor = floor + (1 − floor) · (1 + cos(π · progress)) / 2."""

    class Config(WarmUp):
        """Warm-up and floor."""

        floor: float = Field(0.0, ge=0, le=1, description="share of the learning rate left at the end")

    def decay(self, progress: float) -> float:
        """From 1 to the floor."""
        return self.config.floor + (1.0 - self.config.floor) * 0.5 * (1.0 + math.cos(math.pi * progress))
