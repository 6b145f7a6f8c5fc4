"""Adapters of many methods with numbers that matter, on the specimens, saved as their methods save them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cairn.adapters.attach import attach_saved
from cairn.adapters.specimens import build_specimen
from cairn.plugins import METHODS

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "lora": ("lora", {"rank": 4}),
    "rslora": ("lora", {"rank": 8, "use_rslora": True}),
    "dora": ("lora", {"rank": 4, "use_dora": True}),
    "ia3": ("ia3", {}),
    "oft": ("oft", {"block_size": 16}),
    "fine": ("oft", {"block_size": 8, "targets": ("q_proj", "down_proj")}),
    "boft": ("boft", {"block_size": 4}),
    "road": ("road", {"group_size": 32}),
    "hra": ("hra", {"rank": 4}),
    "hra, orthogonal": ("hra", {"rank": 4, "orthogonal": True}),
    "loha": ("loha", {"rank": 4}),
    "norms": ("ln_tuning", {}),
    "biases": ("beft", {}),
    "tokens": ("trainable_tokens", {"tokens": [33, 80, 91]}),
    "lora and tokens": ("lora", {"rank": 2, "tokens": (57, 80)}),
}
SOME: dict[str, tuple[str, ...]] = {
    "llama": tuple(CASES),
    "qwen3": ("lora", "dora", "ia3", "oft", "fine", "road", "hra", "norms", "tokens"),
    "gpt2": ("lora", "rslora", "dora", "ia3", "norms", "tokens", "lora and tokens"),
}
"""On each architecture; on GPT-2 those that stand on its Conv1D."""


def save_adapter(folder: Path, case: str, model: Any, *, seed: int = 0) -> Path:
    """As `save_method`, of one of the cases."""
    return save_method(folder, *CASES[case], model, seed=seed)


def save_method(folder: Path, name: str, values: dict[str, Any], model: Any, *, seed: int = 0) -> Path:
    """A directory with an adapter on `model`, which it changes, every trained number moved."""
    import torch

    kind = METHODS.load(name)
    method = kind(kind.Config.parse(values))
    adapted = method.attach(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator).to(parameter))
    method.save(adapted, folder)
    return folder


def alone(folder: Path, architecture: str) -> Any:
    """The specimen with the adapter, as PEFT has it."""
    return attach_saved(build_specimen(architecture), folder)
