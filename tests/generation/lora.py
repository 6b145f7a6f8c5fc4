"""PEFT adapters with weights that matter, made on a tiny model and saved as PEFT saves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.tiny import build_model

ALL_LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def save_lora(folder: Path, *, rank: int, seed: int, targets: list[str] | None = None, **config: Any) -> Path:
    """A LoRA directory whose B is not zero, so that its answers differ from the base's."""
    import torch
    from peft import LoraConfig, get_peft_model

    base = config.pop("base", None) or build_model()
    config = {"task_type": "CAUSAL_LM", **config}
    wanted = LoraConfig(r=rank, lora_alpha=4 * rank, target_modules=targets or ALL_LINEAR, **config)
    model = get_peft_model(base, wanted)
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                parameter.normal_(0.0, 0.08)
    model.save_pretrained(folder)
    return folder


def save_reward(folder: Path, model: Path, *, rank: int, seed: int) -> Path:
    """One that scores, on the model in a directory; its head is not zero either."""
    from cairn.models.load import load_model

    base = load_model(model, precision="fp32", head="score")
    return save_lora(folder, rank=rank, seed=seed, base=base, task_type="SEQ_CLS")


def peft_model(folder: Path) -> Any:
    """The same adapter as PEFT serves it, alone."""
    from peft import PeftModel

    return PeftModel.from_pretrained(build_model(), folder).eval()
