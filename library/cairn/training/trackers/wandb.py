"""Weights & Biases, online or offline; a restarted run goes on as the same one.

Offline, each start writes a folder of its own under `wandb/` of the run folder, all with the run's id;
`wandb sync --id ID wandb/offline-run-*` sends them later, in order, as one run.
"""

from __future__ import annotations

import html
import secrets
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from cairn.config.section import Section
from cairn.training.trackers._service import ServiceTracker

EARLIER = "evaluated_step"
"""Axis of figures that became known later."""


class Wandb(ServiceTracker):
    """Numbers as history, texts as HTML, the recipe as the run's configuration."""

    class Config(Section):
        """Where the run appears. The key is wandb's own affair: `wandb login`, or WANDB_API_KEY on the nodes."""

        project: str = Field("cairn", description="project of the run")
        entity: str | None = Field(None, description="user or team; none: the key's own")
        mode: Literal["online", "offline"] | None = Field(None, description="none: as WANDB_MODE says, else online")

    def connect(self, run: Any, known: str | None) -> str:
        """Raises wandb's own errors, such as a missing key."""
        import wandb

        name = known or secrets.token_hex(4)
        self._late: set[str] = set()
        self._run = wandb.init(
            project=self.config.project,
            entity=self.config.entity,
            mode=self.config.mode,
            id=name,
            name=run.recipe.run_name,
            dir=str(run.recipe.run_path),
            config=run.recipe.plain(),
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(console="off", silent=True, disable_git=True, disable_code=True),
        )
        return name

    def send(self, step: int, values: Mapping[str, float]) -> None:
        """At once, with the step's texts."""
        axis = {EARLIER: step} if self._late & set(values) else {}
        self._run.log({**values, **axis}, step=step, commit=True)

    def send_late(self, step: int, values: Mapping[str, float]) -> None:
        """With the next step's, over an axis of its own: history goes forward only."""
        for name in set(values) - self._late:
            self._run.define_metric(name, step_metric=EARLIER)
        self._late |= set(values)
        self._run.log({**values, EARLIER: step}, step=self._sent + 1, commit=False)

    def send_text(self, step: int, name: str, text: str) -> None:
        """Kept with the step until its numbers come."""
        import wandb

        self._run.log({name: wandb.Html(f"<pre>{html.escape(text)}</pre>")}, step=step, commit=False)

    def close(self) -> None:
        """Wait until everything is sent, or written when offline."""
        self._run.finish()
