"""What a schedule is: a factor on the learning rate, as a pure function of the step.

Every schedule warms up the same way; a file says only what comes after.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from cairn.config.section import Section
from cairn.plugins import Plugin


class WarmUp(Section):
    """How long the learning rate rises from near 0."""

    warmup_fraction: float = Field(0.03, ge=0, le=1, description="share of all steps that warm up")
    warmup_steps: int | None = Field(None, ge=0, description="steps that warm up; overrides warmup_fraction")


class Schedule(Plugin):
    """Stateless, so that a resumed run needs nothing but the step."""

    Config: ClassVar[type[Section]] = WarmUp

    def factor(self, step: int, total_steps: int) -> float:
        """The factor for optimizer step `step`, counted from 0, of `total_steps`.

        Over w warm-up steps it is (step + 1) / (w + 1), which reaches 1 at step w; from there `decay` rules, and
        would reach its end at `total_steps`, one step after the last.
        """
        warmup = min(self._warmup_steps(total_steps), total_steps)
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return self.decay(min(1.0, (step - warmup) / max(1, total_steps - warmup)))

    def decay(self, progress: float) -> float:
        """The factor after the warm-up; `progress` runs from 0 to 1."""
        raise NotImplementedError

    def _warmup_steps(self, total_steps: int) -> int:
        if self.config.warmup_steps is not None:
            return int(self.config.warmup_steps)
        return round(self.config.warmup_fraction * total_steps)
