"""PEFT's LoRA layer whose update waits for an invocation, with one mask of the forward pass for all layers."""

from __future__ import annotations

from typing import Any

import torch
from peft.tuners.lora.layer import LoraVariant

from cairn.models.invocation import Invocation

ADAPTER = "default"
NO_WEIGHT = "it acts on a part of each text only, which no weight can"


class Waiting(LoraVariant):
    """The layer's `invocation` says where the update acts."""

    @staticmethod
    def init(module: Any, adapter_name: str, **given: Any) -> None:
        """Nothing to make."""

    @staticmethod
    def forward(module: Any, active_adapter: str, x: torch.Tensor, result: torch.Tensor, **given: Any) -> torch.Tensor:
        """[rows, length, in] → [rows, length, out]."""
        a, b = module.lora_A[active_adapter], module.lora_B[active_adapter]
        update = b(a(module.lora_dropout[active_adapter](x.to(a.weight.dtype)))) * module.scaling[active_adapter]
        invocation: Invocation = module.invocation
        return result + invocation.of(update).to(result.dtype)

    @staticmethod
    def merge_safe(module: Any, active_adapter: str, orig_weight: torch.Tensor) -> torch.Tensor:
        """There are no such weights."""
        raise NotImplementedError(NO_WEIGHT)

    @staticmethod
    def merge_unsafe(module: Any, active_adapter: str, orig_weight: torch.Tensor) -> None:
        """There are no such weights."""
        raise NotImplementedError(NO_WEIGHT)


def let_wait(adapted: Any, invocation: Invocation) -> None:
    """Make every LoRA layer of a PEFT model wait for the invocation, which each of its passes looks for."""
    adapted.invocation = invocation
    adapted.register_forward_pre_hook(invocation.given, with_kwargs=True)
    for layer in adapted.modules():
        if hasattr(layer, "lora_variant"):
            layer.invocation = invocation
            layer.lora_variant[ADAPTER] = Waiting()
