"""PEFT directories, good and hostile, made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

LAYER = "model.layers.0.self_attn.q_proj"


def plain_config(**changes: Any) -> dict[str, Any]:
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": 4,
        "lora_alpha": 8,
        "target_modules": ["q_proj"],
        **changes,
    }


def plain_tensors(*, rank: int = 4, inputs: int = 32, outputs: int = 32, layer: str = LAYER) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        f"base_model.model.{layer}.lora_A.weight": torch.randn(rank, inputs, generator=generator),
        f"base_model.model.{layer}.lora_B.weight": torch.randn(outputs, rank, generator=generator),
    }


def write_adapter(folder: Path, config: Any = None, tensors: dict[str, torch.Tensor] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(plain_config() if config is None else config))
    save_file(plain_tensors() if tensors is None else tensors, folder / "adapter_model.safetensors")
    return folder
