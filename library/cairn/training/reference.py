"""The frozen model beside the trained one: the policy at step 0, or another model that the stage names.

The policy at step 0 costs nothing where an adapter is new, for the base without it is that policy; it is a frozen copy
of the adapter where training goes on from one or where it does not begin as the base (of virtual tokens too), and a
frozen copy of the model in full training. Dropout is off in it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

import torch

from cairn.adapters.soft_prompts import prompt_of
from cairn.config.recipe import Recipe
from cairn.errors import ModelError
from cairn.models.identity import tokenizer_sha256
from cairn.models.kernels.frozen_linear import use_frozen_linears
from cairn.models.load import load_model, load_tokenizer
from cairn.models.unwrap import base_of
from cairn.plugins import METHODS
from cairn.stages.base import POLICY_AT_START, Stage

COPY = "reference"
"""The name of the frozen adapter beside the trained one."""

Reference = Callable[..., Any]


class Kind(Enum):
    """What the reference of a run is."""

    NONE = "none"
    OTHER_MODEL = "another model"
    ADAPTER_OFF = "the model with its adapter switched off"
    ADAPTER_COPY = "a frozen copy of the adapter"
    MODEL_COPY = "a frozen copy of the model"


def kind_of_reference(stage: Stage, recipe: Recipe) -> Kind:
    """Of a run of `recipe` by `stage`."""
    if stage.reference is None:
        return Kind.NONE
    if stage.reference != POLICY_AT_START:
        return Kind.OTHER_MODEL
    method = METHODS.make(recipe.adapter)
    if method.makes_whole_model:
        return Kind.MODEL_COPY
    if recipe.model.adapter is None and method.off_is_start:
        return Kind.ADAPTER_OFF
    own = method.name == "lora" or method.virtual_tokens > 0
    return Kind.ADAPTER_COPY if own else Kind.MODEL_COPY  # others share buffers between adapters


def reference_for(stage: Stage, model: Any, recipe: Recipe, tokenizer: Any, device: torch.device) -> Reference | None:
    """What `stage.reference` asks for; `model` is the policy before its first step, not yet under an engine.

    Raises ModelError where another model speaks another vocabulary.
    """
    kind = kind_of_reference(stage, recipe)
    if kind is Kind.NONE:
        return None
    if kind is Kind.OTHER_MODEL:
        return Frozen(_other_model(str(stage.reference), recipe, tokenizer, device))
    if kind is Kind.MODEL_COPY:
        return Frozen(copy.deepcopy(model).requires_grad_(False))
    if kind is Kind.ADAPTER_OFF:
        return Switched(model, adapter=None)
    prompt = prompt_of(model)
    if prompt is not None:
        return Beside(prompt.over(base_of(model)))
    _copy_adapter(model)
    return Switched(model, adapter=COPY)


class Frozen:
    """A model of its own."""

    def __init__(self, model: Any) -> None:
        self.module = model.eval()

    def __call__(self, **inputs: Any) -> Any:
        """One forward pass."""
        with torch.no_grad():
            return self.module(**inputs)


class Switched:
    """The trained model with another adapter, or with none, for the length of one forward pass."""

    def __init__(self, model: Any, *, adapter: str | None) -> None:
        self.module, self.adapter = model, adapter

    def __call__(self, **inputs: Any) -> Any:
        """One forward pass; the model is as it was afterwards."""
        with torch.no_grad(), self._switched():
            return self.module(**inputs)

    @contextmanager
    def _switched(self) -> Iterator[None]:
        """PEFT's own switches also turn gradients off and on, which the engine's hooks would see; this does not."""
        field, value = ("_disable_adapters", True) if self.adapter is None else ("_active_adapter", self.adapter)
        layers = [module for module in self.module.modules() if hasattr(module, field)]
        before, training = [getattr(layer, field) for layer in layers], self.module.training
        self.module.eval()
        try:
            for layer in layers:
                setattr(layer, field, value)
            yield
        finally:
            for layer, kept in zip(layers, before, strict=True):
                setattr(layer, field, kept)
            self.module.train(training)


class Beside:
    """Other virtual tokens over the base that is being trained with its own."""

    def __init__(self, model: Any) -> None:
        self.module = model

    def __call__(self, **inputs: Any) -> Any:
        """One forward pass; the base is in its mode of before afterwards."""
        base = self.module.get_base_model()
        training = base.training
        base.eval()
        try:
            with torch.no_grad():
                return self.module(**inputs)
        finally:
            base.train(training)


def _copy_adapter(model: Any) -> None:
    """A second adapter with the weights of the first, frozen."""
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    config = copy.deepcopy(model.peft_config["default"])
    config.init_lora_weights = True  # whatever the first began with, the base is changed once
    model.add_adapter(COPY, config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if f".{COPY}." in name:
                parameter.copy_(model.get_parameter(name.replace(f".{COPY}.", ".default.")))
            parameter.requires_grad_(name in trained)


def _other_model(path: str, recipe: Recipe, tokenizer: Any, device: torch.device) -> Any:
    theirs = load_tokenizer(path)
    if tokenizer_sha256(theirs, template=False) != tokenizer_sha256(tokenizer, template=False):
        raise ModelError(
            f"its tokenizer is not that of {recipe.model.path}: the same answer would be other tokens",
            where=path,
            next_step="name a reference model of the same vocabulary, or leave it out",
        )
    model = load_model(path, precision=recipe.training.precision, attention=recipe.model.attention, device=device)
    use_frozen_linears(model, training=False)
    return model
