"""Warm-up, then a straight line down to a floor."""

from __future__ import annotations

from pydantic import Field

from cairn.schedules.base import Schedule, WarmUp


class Linear(Schedule):
    """factor = 1 − (1 − floor) · progress."""

    class Config(WarmUp):
        """Warm-up and floor."""

        floor: float = Field(0.0, ge=0, le=1, description="share of the learning rate left at the end")

    def decay(self, progress: float) -> float:
        """From 1 to the floor."""
        return 1.0 - (1.0 - self.config.floor) * progress
