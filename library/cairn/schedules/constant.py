"""Warm-up, then the full learning rate to the end."""

from __future__ import annotations

from cairn.schedules.base import Schedule


class Constant(Schedule):
    """factor = 1."""

    def decay(self, progress: float) -> float:
        """1 throughout."""
        return 1.0
