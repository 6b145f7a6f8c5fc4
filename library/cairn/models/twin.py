"""A second structure over the same tensors: layers can be replaced in one and not in the other.

An adapter that is looked at beside a model in use is attached to its twin. Cost: Python objects only, no numbers.
"""

from __future__ import annotations

import copy
from typing import TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)


def twin(model: M) -> M:
    """The modules of `model` anew, every parameter and buffer shared; a module that stands in two places does so again."""
    return _twin(model, {})


def _twin(module: M, made: dict[int, nn.Module]) -> M:
    if id(module) not in made:
        again = copy.copy(module)
        made[id(module)] = again
        vars(again).update({name: copy.copy(value) for name, value in vars(again).items() if isinstance(value, dict)})
        for name, child in module._modules.items():
            again._modules[name] = None if child is None else _twin(child, made)
    return made[id(module)]  # type: ignore[return-value]
