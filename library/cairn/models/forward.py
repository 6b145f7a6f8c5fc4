"""Logits only where they are wanted.

The head is a third of a small model's work and its output the largest tensor of a step; a loss needs it only at the
weighted positions. The model's own `logits_to_keep` does that, so softcaps and logit scales of every family hold.
A model without it computes all logits, and the wanted ones are taken.

Cost: with several rows, the union of the wanted columns is computed for each row.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from cairn.models.unwrap import base_of


def logits_at(policy: Callable[..., Any], inputs: dict[str, Any], positions: torch.Tensor) -> torch.Tensor:
    """The logits [n, vocabulary] at `positions`: int64 [n], flat indices into `inputs["input_ids"]`.

    `policy(**inputs)` is a causal language model, bare or under PEFT or DeepSpeed; `inputs` come from
    `cairn.models.attention.forward_inputs`. The order of `positions` is kept; none at all still runs the model once,
    so that a gradient exists and every worker takes part in its collectives.
    """
    length = inputs["input_ids"].shape[1]
    rows, columns = positions // length, positions % length
    if not keeps_logits(policy):
        return policy(**inputs).logits[rows, columns]
    kept = torch.unique(columns) if len(positions) else columns.new_zeros(1)
    logits = policy(**inputs, logits_to_keep=kept).logits
    if len(logits) == 1 and torch.equal(kept, columns):
        return logits[0]  # all that was computed, in order: no copy of the largest tensor
    return logits[rows, torch.searchsorted(kept, columns)]


def keeps_logits(policy: Any) -> bool:
    """Whether the model under `policy` takes an index tensor as `logits_to_keep`."""
    model = base_of(policy)
    return "logits_to_keep" in inspect.signature(getattr(model, "forward", model)).parameters
