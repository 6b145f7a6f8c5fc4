"""What happens when a step's loss or gradient is not finite: the run stops or the step is left out, by the recipe.

Either way nothing was updated (`Engine.step`), and the rows are written into `not_finite.jsonl` by their sources:
those of the micro-batches whose loss was not finite, or all of the step's where only the gradient was not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist

from cairn.data.batch import Batch
from cairn.errors import CairnError
from cairn.training.engine import StepResult
from cairn.training.lines import StepLines, read_lines
from cairn.training.run import Run

NOT_FINITE = "not_finite.jsonl"
MOST_IN_A_ROW = 10
"""Steps left out one after the other; a model that is broken stays broken."""


class NotFinite:
    """Keeps count over restarts. Every worker has one, the first one writes."""

    def __init__(self, run: Run, *, resumed_at: int) -> None:
        self.run, self.in_a_row = run, 0
        self.path = run.recipe.run_path / NOT_FINITE
        if run.session.rank == 0:
            self.lines = StepLines(self.path, resumed_at=resumed_at)
        dist.barrier()
        self.skipped = len({line["step"] for line in read_lines(self.path)})

    def settle(self, step: int, batches: Sequence[Batch], result: StepResult) -> dict[str, float]:
        """`skipped_steps` so far, as soon as there are any; CairnError where the run stops."""
        if result.applied:
            self.in_a_row = 0
            return {"skipped_steps": self.skipped} if self.skipped else {}
        self.in_a_row, self.skipped = self.in_a_row + 1, self.skipped + 1
        for rows in self._gathered(batches, result):
            self.lines.write(step, rows)
        if self.run.recipe.training.not_finite == "stop" or self.in_a_row >= MOST_IN_A_ROW:
            raise CairnError(
                f"training diverged at step {step}: loss {result.loss.value}, gradient norm {result.grad_norm}"
                + (f", {self.in_a_row} steps in a row" if self.in_a_row > 1 else ""),
                where=str(self.path),
                next_step="look at the rows named there; lower optimizer.learning_rate, lengthen the warm-up, or set "
                "training.not_finite to skip",
            )
        return {"skipped_steps": self.skipped}

    def _gathered(self, batches: Sequence[Batch], result: StepResult) -> list[dict[str, Any]]:
        """The lines of all workers, on the first one."""
        blamed = [i for i, loss in enumerate(result.losses) if not math.isfinite(loss)]
        mine = [
            {
                "worker": self.run.session.rank,
                "loss": str(result.losses[i]) if i in blamed else result.losses[i],
                "gradient_norm": str(result.grad_norm),
                "sources": [list(row) for row in batches[i].sources],
            }
            for i in range(len(batches))
        ]
        gathered: list[Any] = [None] * self.run.session.world_size
        dist.all_gather_object(gathered, (blamed, mine))
        anyone = any(blamed for blamed, _ in gathered)
        lines = [lines[i] for blamed, lines in gathered for i in (blamed if anyone else range(len(lines)))]
        return lines if self.run.session.rank == 0 else []
