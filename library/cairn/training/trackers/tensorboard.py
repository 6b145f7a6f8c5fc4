"""TensorBoard event files in `tensorboard/` of the run folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cairn.training.tracker import Tracker


class Tensorboard(Tracker):
    """Scalars by name; a restart purges the steps that are done again."""

    def open(self, run_path: Path, *, resumed_at: int) -> None:
        """A new event file; TensorBoard hides what older ones hold after `resumed_at`."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(run_path / "tensorboard"), purge_step=resumed_at + 1)

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """One scalar a value; what is no number is left out."""
        for name, value in values.items():
            if isinstance(value, int | float):
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and close the event file."""
        self._writer.close()
