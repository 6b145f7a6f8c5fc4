"""The newest value of each figure as a Prometheus gauge, on the metrics endpoint of the node where the first worker is.

Ray collects and serves them (`ray_cairn_loss{run="…"}`); whatever scrapes the cluster sees them. Outside Ray there is no
such endpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cairn.training.tracker import Tracker


class Prometheus(Tracker):
    """A gauge has no past, so that nothing is to be taken back."""

    def open(self, run: Any, *, resumed_at: int) -> None:
        """UserError where the session has no endpoint to show figures on."""
        self._run = run
        self._show({"step": resumed_at})

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Show them."""
        self._show({"step": step, **{name: value for name, value in values.items() if value is not None}})

    def _show(self, values: Mapping[str, float]) -> None:
        self._run.session.expose(self._run.recipe.run_name, values)
