"""A saved adapter on a loaded model, as a PEFT model to evaluate or to go on training.

PEFT's own loading is not used: it takes the config as it comes, warns where keys are missing, and leaves a half-made
adapter behind when it fails. Here the files are checked first, then every tensor goes to its one place.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from cairn.adapters.files import LoraWeights, is_transposed, read_lora, shape_problems
from cairn.adapters.peft_config import expected_rank, says_lora
from cairn.adapters.reading import attach_other, read_other
from cairn.errors import AdapterError
from cairn.models.linears import linear_shapes, shortest_names
from cairn.models.scores import HEAD


def attach_saved(model: Any, folder: str | Path) -> Any:
    """A PEFT model over `model` with the adapter in `folder`, frozen, in evaluation mode; `model` is untouched on a refusal.

    Raises AdapterError when the adapter is refused or does not fit `model`.
    """
    if not says_lora(folder):
        return attach_other(model, read_other(folder))
    return attach_fitting(model, read_lora(folder, scores=hasattr(model, HEAD)), folder)


def attach_fitting(model: Any, weights: LoraWeights, folder: str | Path, *, trainable: bool = False) -> Any:
    """The same of `weights` read from `folder`; AdapterError when they do not fit."""
    problems = list(shape_problems(weights.layers, linear_shapes(model)))
    if problems:
        raise AdapterError(
            f"the adapter does not fit the model: {problems[0]}"
            + (f" (and {len(problems) - 1} more)" * (len(problems) > 1)),
            where=str(folder),
            next_step="attach it to the base model that it was trained on",
        )
    return attach_weights(model, weights, trainable=trainable)


def attach_weights(model: Any, weights: LoraWeights, *, trainable: bool = False) -> Any:
    """A PEFT model over `model` with `weights`, which must fit it (`shape_problems` finds nothing)."""
    from peft import get_peft_model

    adapted = get_peft_model(model, _peft_config(model, weights), autocast_adapter_dtype=False).eval()
    base = adapted.get_base_model()
    with torch.no_grad():
        for path, (a, b) in weights.layers.items():
            layer = base.get_submodule(path)
            layer.lora_A["default"].weight.copy_(a)
            layer.lora_B["default"].weight.copy_(b)
        if weights.head is not None:
            getattr(base, HEAD).modules_to_save["default"].weight.copy_(weights.head)
    if not trainable:
        adapted.requires_grad_(False)
    return adapted


def task_type(model: Any) -> str:
    """PEFT's word for what `model` does; of one that scores it trains and saves the head too."""
    return "SEQ_CLS" if hasattr(model, HEAD) else "CAUSAL_LM"


def _peft_config(model: Any, weights: LoraWeights) -> Any:
    from peft import LoraConfig

    config = weights.config
    ranks = {path: expected_rank(config, path) for path in weights.layers}
    root = (lambda rank: rank**0.5) if config.get("use_rslora") else float
    alphas = {path: weights.scaling[path] * root(rank) for path, rank in ranks.items()}
    exact = {path: f"^{re.escape(path)}" for path in weights.layers}
    return LoraConfig(
        task_type=task_type(model),
        r=int(config["r"]),
        lora_alpha=config["lora_alpha"],
        lora_dropout=float(config.get("lora_dropout") or 0.0),
        use_rslora=bool(config.get("use_rslora")),
        target_modules=shortest_names(model, list(weights.layers)),
        fan_in_fan_out=is_transposed(model, list(weights.layers)),
        rank_pattern={exact[path]: rank for path, rank in ranks.items() if rank != config["r"]},
        alpha_pattern={exact[path]: alpha for path, alpha in alphas.items() if alpha != config["lora_alpha"]},
    )
