"""What a trainer did between the end of its warm-up and the end of its last counted step. Needs no package at all."""

from __future__ import annotations

import json
import resource
import time
from typing import Any


class Stopwatch:
    """Told of every finished step and, before that, of the step's work."""

    def __init__(self, warmup: int) -> None:
        self.warmup, self.steps = warmup, 0
        self.work: dict[str, int] = {}
        self.begun = (0.0, 0.0)
        self.taken = (0.0, 0.0)

    def add(self, **work: int) -> None:
        """Work of the step that is under way, by name."""
        if self.steps >= self.warmup:
            for name, amount in work.items():
                self.work[name] = self.work.get(name, 0) + int(amount)

    def step_ends(self) -> None:
        """An optimizer step is done."""
        self.steps += 1
        now = (time.perf_counter(), time.process_time())
        if self.steps == self.warmup:
            self.begun = now
        self.taken = (now[0] - self.begun[0], now[1] - self.begun[1])

    def show(self) -> None:
        """One JSON line."""
        figures: dict[str, Any] = {
            "steps": self.steps - self.warmup,
            **self.work,
            "seconds": self.taken[0],
            "cpu_seconds": self.taken[1],
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }
        print(json.dumps(figures), flush=True)
