"""Freeze tuning: the last layers of the model are trained as they are, the rest is frozen; the result is a whole model.

Memory: gradients and moments for the trained layers alone, weights for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from cairn.adapters.method import Capabilities, Method
from cairn.config.section import Section
from cairn.errors import AdapterError, did_you_mean
from cairn.models.save import save_model


class Freeze(Method):
    """Some layers of the base itself."""

    can = Capabilities(layers=("any",), merges=False, converts="no")
    makes_whole_model = True

    class Config(Section):
        """Which parameters train."""

        layers: int = Field(2, description="the last so many layers; negative: the first")
        modules: tuple[str, ...] = Field((), description="only these modules of the layers; none named: all")
        extra_modules: tuple[str, ...] = Field((), description="modules outside of the layers that are trained too")

    def problems(self, model: Any) -> Iterator[str]:
        """Names that no parameter has, and more layers than there are."""
        try:
            self._trained(model)
        except AdapterError as error:
            yield f"{error.what}: {error.next_step}"

    def attach(self, model: Any) -> Any:
        """The model itself with the chosen parameters trainable."""
        trained = self._trained(model)
        for name, parameter in model.named_parameters():
            parameter.requires_grad = name in trained
        return model

    def save(self, model: Any, folder: Path) -> None:
        """A model directory in safetensors; the tokenizer is the caller's to add."""
        save_model(model, folder)

    def _trained(self, model: Any) -> set[str]:
        names = [name for name, _ in model.named_parameters()]
        numbers = {name: next((int(part) for part in name.split(".") if part.isdigit()), None) for name in names}
        count = 1 + max((number for number in numbers.values() if number is not None), default=-1)
        if not 0 < abs(self.config.layers) <= count:
            raise AdapterError(
                f"adapter.layers={self.config.layers} of a model with {count} layers",
                where="adapter.layers",
                next_step=f"give 1 to {count}, or -{count} to -1 for the first ones",
            )
        chosen = range(count - self.config.layers, count) if self.config.layers > 0 else range(-self.config.layers)
        inside = [name for name, number in numbers.items() if number in chosen]
        outside = [name for name, number in numbers.items() if number is None]
        found = _named(inside, self.config.modules) if self.config.modules else set(inside)
        return found | _named(outside, self.config.extra_modules)


def _named(names: list[str], modules: tuple[str, ...]) -> set[str]:
    """The parameters of which a part is called as one of `modules`; AdapterError for a name without any."""
    found: set[str] = set()
    for module in modules:
        matching = {name for name in names if module in name.split(".")}
        if not matching:
            parts = {part for name in names for part in name.split(".")[:-1] if not part.isdigit()}
            raise AdapterError(
                f"no module is called '{module}'", where="adapter", next_step=did_you_mean(module, parts)
            )
        found |= matching
    return found
