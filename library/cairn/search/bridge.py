"""From Ray Train's controller to the trial that Ray Tune watches, one report at a time.

Tune's own callback hands on a checkpoint *path* as a metric, which its schedulers do not see, so that PBT does nothing.
Here the trial itself reports to Tune, with a real checkpoint, and training goes on only when Tune has taken it: the
checkpoint cannot be deleted meanwhile, and a stopped trial runs at most to its next report.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread
from typing import Any

import ray.train
from ray.util.queue import Empty, Queue

POLL_S = 0.2
Report = tuple[dict[str, Any], str]


class ReportBridge(ray.train.UserCallback):
    """Give it to the trainer; iterate over `reports` in the trial. A report without a checkpoint stays behind."""

    def __init__(self) -> None:
        self.given = Queue(1, actor_options={"num_cpus": 0})
        self.taken = Queue(1, actor_options={"num_cpus": 0})

    def after_report(
        self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: ray.train.Checkpoint | None
    ) -> None:
        """Called in the controller process; blocks until the trial has handed the report on."""
        if checkpoint is not None:
            self.given.put((metrics[0], checkpoint.path))
            self.taken.get()

    def reports(self, training: Thread) -> Iterator[Report]:
        """(metrics, checkpoint folder) as they come, until `training` has ended; asking for the next acknowledges."""
        while True:
            alive = training.is_alive()
            try:
                report = self.given.get(timeout=POLL_S)
            except Empty:
                if not alive:
                    return
                continue
            yield report
            self.taken.put(True)
