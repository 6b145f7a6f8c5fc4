"""What an adapter method is: its knobs, and how it makes parameters of a base model trainable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cairn.errors import AdapterError
from cairn.plugins import Plugin


class Method(Plugin):
    """`attach` returns the model to train; afterwards exactly the method's parameters require a gradient."""

    def attach(self, model: Any) -> Any:
        """The trainable model over `model` (a PEFT model, or the model itself for full training)."""
        raise NotImplementedError

    def go_on(self, model: Any, folder: Path) -> Any:
        """The trainable model over `model` with what `save` wrote into `folder`."""
        raise AdapterError(
            f"the method '{self.name}' cannot go on from an adapter",
            where=str(folder),
            next_step="set adapter.name to the method that trained it",
        )

    def save(self, model: Any, folder: Any) -> None:
        """Write what `load` elsewhere needs into `folder`: a PEFT directory, or a whole model directory."""
        raise NotImplementedError
