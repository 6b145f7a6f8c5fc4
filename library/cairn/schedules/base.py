"""What a schedule is: a factor on the learning rate, as a pure function of the step."""

from __future__ import annotations

from cairn.plugins import Plugin


class Schedule(Plugin):
    """Stateless, so that a resumed run needs nothing but the step."""

    def factor(self, step: int, total_steps: int) -> float:
        """The factor for optimizer step `step`, counted from 0, of `total_steps`."""
        raise NotImplementedError
