"""How many floating-point operations a training step needs, and what a device can do.

A weight in a product costs 2 operations a token forwards, 2 backwards for the gradient of its input, and 2 more for its
own gradient where it is trained: 6·N for full training (Kaplan et al. 2020, arXiv 2001.08361, section 2.1), 4·N for the
frozen base under LoRA, whose weights get no gradient. Attention adds 12·L·h·s a token for L layers of width h and s
tokens that see each other, not halved for causality (Chowdhery et al. 2022, arXiv 2204.02311, appendix B). The head is
counted at the positions that get logits, a reference model with its forward pass. Recomputed activations do not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from cairn.models.unwrap import base_of, text_config

FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = 2, 2, 2
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")

PEAKS = {
    "B200": (2250e12, 75e12),
    "H200": (989e12, 67e12),
    "H100 PCIe": (756e12, 51e12),
    "H100": (989e12, 67e12),
    "A100": (312e12, 19.5e12),
    "A10": (125e12, 31.2e12),
    "L40S": (362e12, 91.6e12),
    "L4": (121e12, 30.3e12),
    "RTX 4090": (165e12, 82.6e12),
    "RTX 3090": (71e12, 35.6e12),
}
"""Part of a device's name → operations a second in bf16 (tensor cores, dense) and fp32 (CUDA cores), from NVIDIA's data
sheets. More particular names come first."""


@dataclass(frozen=True)
class Work:
    """`frozen`, `trained`: weights of the body that stand in products. `head`: weights of the head, `head_trained`.

    `width`: layers × the width of their attention.
    """

    frozen: int
    trained: int
    head: int
    head_trained: bool
    width: int

    def of_step(self, tokens: float, with_logits: float, squares: float, *, reference: bool) -> float:
        """Operations of one step over `tokens`, of which `with_logits` get logits; `squares` is Σ s² over the segments
        of s tokens that see each other."""
        body, attention = self.frozen + self.trained, 4 * self.width * squares
        there_and_back = FORWARD + INPUT_GRADIENT
        step = tokens * (there_and_back * body + WEIGHT_GRADIENT * self.trained) + 3 * attention
        step += with_logits * self.head * (there_and_back + WEIGHT_GRADIENT * self.head_trained)
        again = tokens * FORWARD * self.frozen + with_logits * FORWARD * self.head + attention
        return step + (again if reference else 0.0)


def work_of(model: nn.Module) -> Work | None:
    """What `model` costs; None for a mixture of experts, of which a token sees a part."""
    config, inner = text_config(model), base_of(model)
    if any(getattr(config, key, None) for key in EXPERTS):
        return None
    head = inner.get_output_embeddings()
    counts = {True: 0, False: 0}
    for module in inner.modules():
        if module is not head and isinstance(module, nn.Linear | Conv1D):
            counts[module.weight.requires_grad] += _size(module)
    heads = config.num_attention_heads
    width = heads * (getattr(config, "head_dim", None) or config.hidden_size // heads)
    head_trained = head is not None and head.weight.requires_grad
    return Work(
        counts[False],
        counts[True],
        _size(head) if head is not None else 0,
        head_trained,
        config.num_hidden_layers * width,
    )


def peak_of(device: torch.device, precision: str) -> float | None:
    """Operations a second that the device can do at most; None where the table has no entry, as for every CPU."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((bf16 if precision == "bf16" else fp32 for part, (bf16, fp32) in PEAKS.items() if part in name), None)


def _size(module: Any) -> int:
    """By the layer's shape: a quantised or divided weight has another, and an adapter may be around it."""
    module = getattr(module, "base_layer", module)
    return int(module.in_features * module.out_features if isinstance(module, nn.Linear) else module.nx * module.nf)
