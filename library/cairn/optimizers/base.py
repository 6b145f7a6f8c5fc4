"""What an optimizer is: its knobs, and how it is built over named parameter groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cairn.plugins import Plugin


class Optimizer(Plugin):
    """Describes itself; the engine builds what needs DeepSpeed. Config must hold `learning_rate`."""

    def build(self, parameters: Iterable[tuple[str, Any]]) -> Any:
        """A torch.optim.Optimizer over (name, parameter) pairs, weight decay off for biases and norms."""
        raise NotImplementedError
