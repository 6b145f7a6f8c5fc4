"""From Ray Train's controller to the trial that Ray Tune watches, one report at a time.

Tune's own callback hands on a checkpoint *path* as a metric, which its schedulers do not see, so that PBT does nothing.
Here the trial itself reports to Tune, with a real checkpoint, and training goes on only when Tune has taken it: the
checkpoint cannot be deleted meanwhile, and a stopped trial runs at most to its next report. Cost: one small actor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from threading import Thread
from typing import Any

import ray
import ray.train

POLL_S = 0.2
Report = tuple[dict[str, Any], str]


class Mailbox:
    """One report lies here until it has been taken and acknowledged."""

    def __init__(self) -> None:
        self.given: asyncio.Queue[Report] = asyncio.Queue(1)
        self.taken: asyncio.Queue[bool] = asyncio.Queue(1)

    async def give(self, report: Report) -> None:
        """Returns when the report was acknowledged."""
        await self.given.put(report)
        await self.taken.get()

    async def take(self, timeout_s: float) -> Report | None:
        """The next report, None when none comes in time."""
        try:
            return await asyncio.wait_for(self.given.get(), timeout_s)
        except TimeoutError:
            return None

    async def acknowledge(self) -> None:
        """Lets the giver go on."""
        await self.taken.put(True)


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
