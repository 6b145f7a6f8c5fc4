"""A model's architecture without its weights, on the meta device: names and shapes within a second, whatever its size."""

from __future__ import annotations

import copy
from typing import Any, Literal

import torch


def skeleton(
    config: Any,
    *,
    head: Literal["language", "score"] = "language",
    dtype: torch.dtype | None = None,
    trust_remote_code: bool = False,
) -> Any:
    """The model that a transformers `config` describes, its parameters frozen; `head`: as of `cairn.models.load.load_model`."""
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    family: Any = AutoModelForCausalLM
    if head == "score":
        family, config = AutoModelForSequenceClassification, copy.copy(config)
        config.num_labels = 1
    options = {"dtype": dtype} if dtype is not None else {}
    with torch.device("meta"):
        return family.from_config(config, trust_remote_code=trust_remote_code, **options).requires_grad_(False)
