"""What trackers share whose service cannot take a step back: what was sent is noted and never sent twice.

`wandb.json` or `mlflow.json` in the run folder holds the run's id with the service and the last step it got, so that a
restarted run goes on as the same one. Cost: one small file written at each logged step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cairn.training.state import replace_text
from cairn.training.tracker import Tracker


class ServiceTracker(Tracker):
    """Subclasses say how to connect, send, and leave."""

    def open(self, run: Any, *, resumed_at: int) -> None:
        """Connect as the run that the folder knows, or as a new one."""
        self._note = run.recipe.run_path / f"{self.name}.json"
        known: dict[str, Any] = json.loads(self._note.read_text()) if self._note.exists() else {}
        self._id, self._sent = self.connect(run, known.get("id")), int(known.get("step", 0))
        self._written = resumed_at
        self._keep()

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Send the numbers of a step that was not sent before, or what has become known of an earlier one."""
        numbers = {name: value for name, value in values.items() if value is not None}
        if step > self._sent:
            self.send(step, numbers)
            self._sent = step
            self._keep()
        elif step <= self._written:
            self.send_late(step, numbers)
        self._written = max(step, self._written)

    def write_text(self, step: int, name: str, text: str) -> None:
        """Send a text of a step that was not sent before; texts come before the step's numbers."""
        if step > self._sent:
            self.send_text(step, name, text)

    def connect(self, run: Any, known: str | None) -> str:
        """Go on as the service's run `known`, or begin one; returns its id."""
        raise NotImplementedError

    def send(self, step: int, values: Mapping[str, float]) -> None:
        """One step's numbers."""
        raise NotImplementedError

    def send_late(self, step: int, values: Mapping[str, float]) -> None:
        """Numbers of a step before the last; as `send` where the service takes steps in any order."""
        self.send(step, values)

    def send_text(self, step: int, name: str, text: str) -> None:
        """One text."""
        raise NotImplementedError

    def _keep(self) -> None:
        replace_text(self._note, json.dumps({"id": self._id, "step": self._sent}))
