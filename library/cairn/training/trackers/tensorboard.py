"""TensorBoard event files in `tensorboard/` of the run folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cairn.training.tracker import Tracker


class Tensorboard(Tracker):
    """Scalars by name; a restart purges the steps that are done again."""

    def open(self, run: Any, *, resumed_at: int) -> None:
        """A new event file; TensorBoard hides what older ones hold after `resumed_at`."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(run.recipe.run_path / "tensorboard"), purge_step=resumed_at + 1)

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """One scalar a value; what is no number is left out."""
        for name, value in values.items():
            if isinstance(value, int | float):
                self._writer.add_scalar(name, value, step)

    def write_text(self, step: int, name: str, text: str) -> None:
        """Under the tab for text, where Markdown is rendered."""
        self._writer.add_text(name, text, step)

    def close(self) -> None:
        """Flush and close the event file."""
        self._writer.close()
