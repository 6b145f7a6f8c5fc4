"""A model that scores instead of speaking: a head of one number over every position, read where an answer ends.

transformers' sequence-classification models are that, for every family, but read one position a row, which packed rows
do not have; so the head's output is taken as it leaves the head. The head begins at zero: all scores are 0 before the
first step, and every worker begins alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cairn.errors import ModelError
from cairn.models.unwrap import base_of

HEAD = "score"
"""The module's name in transformers' sequence-classification models."""


def scores_at(model: Callable[..., Any], inputs: dict[str, Any], positions: torch.Tensor) -> torch.Tensor:
    """The scores [n], fp32, at `positions`: int64 [n], flat indices into `inputs["input_ids"]`.

    `model(**inputs)` is a model from `load_scorer`, bare or under PEFT or DeepSpeed.
    """
    caught: list[torch.Tensor] = []
    handle = head_of(model).register_forward_hook(lambda module, given, output: caught.append(output))
    try:
        model(**inputs)
    finally:
        handle.remove()
    return caught[-1].float().flatten()[positions]


def scores_with(
    model: Callable[..., Any], head: torch.Tensor, inputs: dict[str, Any], positions: torch.Tensor
) -> torch.Tensor:
    """The same of a language model whose last hidden states `head` [1, width] reads: so a reward adapter scores on the
    base that others speak with."""
    hidden: torch.Tensor = base_of(model).base_model(**inputs).last_hidden_state
    scored = torch.nn.functional.linear(hidden.flatten(0, 1)[positions], head.to(hidden))
    return scored.float().flatten()


def is_scorer(config: Any) -> bool:
    """Whether a model with this transformers config was saved with a scoring head."""
    return any(name.endswith("ForSequenceClassification") for name in config.architectures or ())


def head_of(model: Any) -> torch.nn.Module:
    """The module that gives the score; the trained copy where PEFT keeps one beside the original."""
    head: torch.nn.Module = getattr(base_of(model), HEAD)
    return head


def trained_head(model: Any) -> torch.Tensor | None:
    """The weight [1, width] of the head that PEFT trains beside the original; None for a model that speaks."""
    head = getattr(base_of(model), HEAD, None)
    return None if head is None else head.modules_to_save["default"].weight.detach()


def load_scorer(found: Any, **options: Any) -> Any:
    """The model in the folder `found` with a head of one number, its own or one of zeros, and transformers' report.

    options: as transformers' `from_pretrained` takes them. Raises ModelError for a family without such a model.
    """
    from transformers import AutoConfig, AutoModelForSequenceClassification
    from transformers.utils import logging

    config = AutoConfig.from_pretrained(found, trust_remote_code=options.get("trust_remote_code", False), num_labels=1)
    if type(config) not in AutoModelForSequenceClassification._model_mapping:
        raise ModelError(
            f"transformers has no scoring head for a '{config.model_type}' model",
            where=str(found),
            next_step="use another base model for the reward stage",
        )
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # a table says that the head is new, which is what is wanted
    try:
        model, report = AutoModelForSequenceClassification.from_pretrained(found, config=config, **options)
    finally:
        logging.set_verbosity(verbosity)
    model.config.pad_token_id = config.pad_token_id if config.pad_token_id is not None else 0
    missing = {str(key) for key in report["missing_keys"]}
    fresh = {key for key in missing if key.startswith(f"{HEAD}.")}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in fresh:
                parameter.zero_()
    report["missing_keys"] = missing - fresh
    return model, report
