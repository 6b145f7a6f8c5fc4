"""How much of the device a run uses: `flops_per_second`, and `mfu` where the device's peak is known.

Model-FLOPs utilisation (Chowdhery et al. 2022, arXiv 2204.02311, section 4.1) is the operations that the model needs
(`cairn.training.flops`) by those that the devices could have done. A CPU's peak stands in no table, so it has no `mfu`.
Cost: three numbers are shared by the workers at each logged step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from cairn.data.batch import Batch
from cairn.training.callback import Callback, Figures
from cairn.training.flops import peak_of, work_of
from cairn.training.run import Run


class Throughput(Callback):
    """Figures of the single step, with those of `training.log_every`."""

    def start(self, run: Run, *, resumed_at: int) -> None:
        """Count the model's weights."""
        self.work = work_of(run.engine.model)
        self.peak = peak_of(run.session.device, run.recipe.training.precision)

    def before_step(self, run: Run, step: int, batches: Sequence[Batch]) -> None:
        """Count this worker's tokens, positions with logits, and tokens that see each other, when due; a row without
        sources only keeps the workers in step."""
        if step % run.recipe.training.log_every:
            return
        segments = [batch.segments[[bool(sources) for sources in batch.sources]] for batch in batches]
        self.tokens = float(sum(int((counted > 0).sum()) for counted in segments))
        self.with_logits = float(sum(int((batch.weights > 0).sum()) for batch in batches))
        self.squares = float(sum(_squares(counted) for counted in segments))

    def after_step(self, run: Run, step: int, figures: Figures) -> Figures:
        """Operations by the step's time."""
        if self.work is None or step % run.recipe.training.log_every:
            return {}
        tokens, with_logits, squares = map(run.engine.total, (self.tokens, self.with_logits, self.squares))
        reference = run.engine.models.reference is not None and run.ahead is None
        per_second = self.work.of_step(tokens, with_logits, squares, reference=reference) / float(
            figures["step_seconds"]
        )
        used = {"mfu": per_second / (self.peak * run.session.world_size)} if self.peak else {}
        return {"flops_per_second": per_second, **used}


def _squares(segments: torch.Tensor) -> int:
    """Σ over the rows' segments of their length squared; padding is segment 0."""
    if not len(segments):
        return 0
    rows = torch.arange(len(segments)).unsqueeze(1) * (int(segments.max()) + 1)
    lengths = torch.bincount((segments.cpu() + rows)[segments.cpu() > 0])
    return int((lengths * lengths).sum())
