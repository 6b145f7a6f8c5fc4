"""Small LoRAs as data, of any ranks and places, and their updates as plain matrices."""

from __future__ import annotations

import torch

from cairn.adapters.files import LoraWeights
from cairn.adapters.plain import plain_lora

SHAPES = {
    "model.layers.0.self_attn.q_proj": (64, 64),
    "model.layers.0.self_attn.v_proj": (64, 32),
    "model.layers.1.mlp.down_proj": (128, 64),
}


def lora(
    seed: int,
    ranks: int | dict[str, int] = 4,
    *,
    scaling: float = 1.5,
    head: bool = False,
    dtype: torch.dtype = torch.float32,
) -> LoraWeights:
    """Random A and B of `ranks` on the modules of SHAPES, or on those that `ranks` names."""
    draw = torch.Generator().manual_seed(seed)
    ranks = dict.fromkeys(SHAPES, ranks) if isinstance(ranks, int) else ranks
    layers = {
        path: (
            torch.randn(rank, SHAPES[path][0], generator=draw).to(dtype),
            torch.randn(SHAPES[path][1], rank, generator=draw).to(dtype),
        )
        for path, rank in ranks.items()
    }
    return plain_lora(
        layers, scaling=dict.fromkeys(layers, scaling), head=torch.randn(1, 64, generator=draw) if head else None
    )


def delta(weights: LoraWeights, path: str) -> torch.Tensor:
    """ΔW [out, in] in float64, zeros where the module is left alone."""
    if path not in weights.layers:
        return torch.zeros(*reversed(SHAPES[path]), dtype=torch.float64)
    a, b = weights.layers[path]
    return weights.scaling[path] * (b.double() @ a.double())


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """‖found − wanted‖ / ‖wanted‖."""
    return float((found - wanted).norm() / wanted.norm())
