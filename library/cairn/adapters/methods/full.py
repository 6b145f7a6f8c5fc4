"""Full training: every parameter of the model is trained, and the result is a whole model directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cairn.adapters.method import Capabilities, Method
from cairn.config.section import Section
from cairn.models.save import save_model


class Full(Method):
    """The base itself. Memory: weights, gradients and two moments for every parameter."""

    can = Capabilities(layers=("any",), merges=False, converts="no")
    makes_whole_model = True

    class Config(Section):
        """Nothing to choose."""

    def attach(self, model: Any) -> Any:
        """The model itself with every parameter trainable."""
        return model.requires_grad_(True)

    def save(self, model: Any, folder: Path) -> None:
        """A model directory in safetensors; the tokenizer is the caller's to add."""
        save_model(model, folder)
