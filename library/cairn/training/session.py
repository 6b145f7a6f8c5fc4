"""What the loop needs of its surroundings: who am I, take this report, where did I stop?

Ray Train gives one (`training/trainer.py`); a process of one's own gives another (`training/local.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import torch


class Session(Protocol):
    """One worker's place in a run. The process group is up. `report` is a barrier: all workers call it together."""

    rank: int
    world_size: int
    device: torch.device

    def report(self, metrics: Mapping[str, float], checkpoint: Path | None, *, name: str) -> None:
        """Hand on a step's metrics; `checkpoint` is a folder of rank 0 to keep under `name`, and then to delete."""

    def expose(self, run: str, values: Mapping[str, float]) -> None:
        """Show the newest values to whoever scrapes the cluster; UserError where nobody can."""

    def background(self, work: Callable[..., Any], given: tuple[Any, ...], *, cpus: float) -> Future[Any]:
        """Have `work(*given)` done in another process while this one goes on; plain values go in and come out."""

    def latest_checkpoint(self) -> AbstractContextManager[Path | None]:
        """The newest kept checkpoint as a folder readable inside the block; all workers leave it together."""
