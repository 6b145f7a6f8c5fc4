"""The rank of every layer, each time that training changes one, in `ranks.jsonl` (step, path → rank).

The dashboard draws it. Cost: a line of some kilobytes where ranks change.
"""

from __future__ import annotations

from cairn.training.callback import Callback, Figures
from cairn.training.lines import StepLines, read_lines
from cairn.training.run import Run

RANKS = "ranks.jsonl"


class Ranks(Callback):
    """Works where the method says ranks, on the first worker."""

    def start(self, run: Run, *, resumed_at: int) -> None:
        """Take back what was written after the checkpoint."""
        path = run.recipe.run_path / RANKS
        self.writes = run.session.rank == 0 and run.hook is not None
        if self.writes:
            self.lines = StepLines(path, resumed_at=resumed_at)
            kept = read_lines(path)
            self.last = kept[-1]["ranks"] if kept else {}

    def after_step(self, run: Run, step: int, figures: Figures) -> Figures:
        """A line where a rank is another than before."""
        if self.writes and run.hook is not None and (ranks := run.hook.ranks()) != self.last:
            self.lines.write(step, {"ranks": ranks})
            self.last = ranks
        return {}
