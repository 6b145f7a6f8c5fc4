"""A plain LoRA that was computed, not trained: its config says of every module exactly its rank and its strength.

What is written opens with `PeftModel.from_pretrained`, with `read_lora`, and with everything that reads PEFT.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from cairn.adapters.files import HEAD_KEY, WEIGHTS_FILE, LoraWeights
from cairn.adapters.peft_config import SCORES, SPEAKS
from cairn.models.save import share_weights
from cairn.models.scores import HEAD

Layers = Mapping[str, tuple[torch.Tensor, torch.Tensor]]


def plain_lora(
    layers: Layers, *, scaling: Mapping[str, float] | None = None, transposed: bool = False, head: Any = None
) -> LoraWeights:
    """LoraWeights of A [rank, in] and B [out, rank] by path, each of its own rank; `scaling` is 1 where not given.

    `transposed`: the base keeps its weights as [in, out] (GPT-2). With `head` [1, width] it scores.
    """
    scaling = dict(scaling or dict.fromkeys(layers, 1.0))
    ranks = {path: a.shape[0] for path, (a, _) in layers.items()}
    alphas = {path: scaling[path] * rank for path, rank in ranks.items()}
    rank, alpha = _commonest(ranks), _commonest(alphas)
    config = {
        "peft_type": "LORA",
        "task_type": SPEAKS if head is None else SCORES,
        "r": rank,
        "lora_alpha": alpha,
        "rank_pattern": {_exactly(path): r for path, r in ranks.items() if r != rank},
        "alpha_pattern": {_exactly(path): a for path, a in alphas.items() if a != alpha},
        "target_modules": sorted(layers),
        "fan_in_fan_out": transposed,
    }
    return LoraWeights(max(ranks.values()), float(alpha), scaling, dict(layers), config, head)


def write_lora(weights: LoraWeights, folder: str | Path, *, base: str) -> Path:
    """Write a PEFT directory (config and safetensors) that names `base`; returns the folder, which may exist."""
    from peft import LoraConfig
    from safetensors.torch import save_file

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    again = plain_lora(
        weights.layers,
        scaling=weights.scaling,
        transposed=bool(weights.config.get("fan_in_fan_out")),
        head=weights.head,
    )
    fields = {name: value for name, value in again.config.items() if name != "peft_type"}
    saved = [HEAD] if weights.head is not None else None
    LoraConfig(**fields, base_model_name_or_path=base, modules_to_save=saved, inference_mode=True).save_pretrained(
        str(folder)
    )
    tensors = {
        f"base_model.model.{path}.lora_{part}.weight": tensor.detach().cpu().contiguous()
        for path, pair in weights.layers.items()
        for part, tensor in zip("AB", pair, strict=True)
    }
    if weights.head is not None:
        tensors[HEAD_KEY] = weights.head.detach().cpu().contiguous()
    save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    share_weights(folder)
    return folder


def _exactly(path: str) -> str:
    """A key of a pattern that matches this module and no other, in PEFT's reading and in ours."""
    return f"^{re.escape(path)}"


def _commonest(values: Mapping[str, Any]) -> Any:
    return Counter(values.values()).most_common(1)[0][0]
