"""The weights of a mixture's experts, which transformers keep stacked in one parameter a layer, [experts, …, …]."""

from __future__ import annotations

from torch import nn

from cairn.models.unwrap import base_of


def stacked_weights(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Path → shape of every parameter of three dimensions, those of convolutions apart."""
    base = base_of(model)
    convolutions = {id(module.weight) for module in base.modules() if isinstance(module, nn.Conv1d)}
    return {
        path: tuple(parameter.shape)
        for path, parameter in base.named_parameters()
        if parameter.dim() == 3 and id(parameter) not in convolutions
    }
