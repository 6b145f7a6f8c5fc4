"""From Ray Train's controller to the trial that Ray Tune watches, one report at a time.

Tune's own callback hands on a checkpoint *path* as a metric, which its schedulers do not see, so that PBT does nothing.
Here the trial itself reports to Tune, with a real checkpoint, and training goes on only when Tune has taken it: the
checkpoint cannot be deleted meanwhile, and a stopped trial runs at most to its next report. Cost: one small actor.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread
from typing import Any

import ray
import ray.train

from cairn.search.mailbox import Mailbox, Report

POLL_S = 0.2


class ReportBridge(ray.train.UserCallback):
    """Give it to the trainer; iterate over `reports` in the trial. A report without a checkpoint stays behind."""

    def __init__(self) -> None:
        self.mailbox: Any = ray.remote(num_cpus=0)(Mailbox).remote()

    def after_report(
        self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: ray.train.Checkpoint | None
    ) -> None:
        """Called in the controller process; blocks until the trial has handed the report on."""
        if checkpoint is not None:
            ray.get(self.mailbox.give.remote((metrics[0], checkpoint.path)))

    def reports(self, training: Thread) -> Iterator[Report]:
        """(metrics, checkpoint folder) as they come, until `training` has ended; asking for the next acknowledges."""
        while True:
            alive = training.is_alive()
            report = ray.get(self.mailbox.take.remote(POLL_S))
            if report is not None:
                yield report
                ray.get(self.mailbox.acknowledge.remote())
            elif not alive:
                return
