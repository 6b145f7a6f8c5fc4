"""LlamaFactory's supervised fine-tuning with the settings of its LoRA example, in an environment of its own."""

from __future__ import annotations

import importlib.machinery
import json
import sys
import types
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
SOUND = "torchaudio"
"""Imported by LlamaFactory for audio in messages, of which there is none."""
sys.modules[SOUND] = types.ModuleType(SOUND)
sys.modules[SOUND].__spec__ = importlib.machinery.ModuleSpec(SOUND, None)

import torch  # noqa: E402
from llamafactory.train.tuner import run_exp  # noqa: E402
from stopwatch import Stopwatch  # noqa: E402
from transformers import Trainer, TrainerCallback  # noqa: E402


class Watching(TrainerCallback):
    """Tells the stopwatch of every step."""

    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """An optimizer step is done."""
        self.watch.step_ends()


def main() -> None:
    """Train as the settings say."""
    settings = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(settings["threads"])
    watch = Stopwatch(settings["warmup"])
    original = Trainer.training_step

    def counted(self: Any, model: Any, inputs: dict[str, torch.Tensor], *rest: Any, **named: Any) -> Any:
        watch.add(tokens=inputs["attention_mask"].sum().item(), trained=(inputs["labels"] != -100).sum().item())
        return original(self, model, inputs, *rest, **named)

    Trainer.training_step = counted
    data, scratch = Path(settings["data"]), Path(settings["scratch"])
    tags = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}
    described = {"file_name": data.name, "formatting": "sharegpt", "columns": {"messages": "messages"}, "tags": tags}
    (data.parent / "dataset_info.json").write_text(json.dumps({"chats": described}))
    run_exp(
        {
            "model_name_or_path": settings["model"],
            "stage": "sft",
            "do_train": True,
            "finetuning_type": "lora",
            "lora_rank": settings["rank"],
            "lora_target": "all",
            "dataset": "chats",
            "dataset_dir": str(data.parent),
            "template": "smollm2",
            "cutoff_len": settings["length"],
            "per_device_train_batch_size": settings["rows_a_pass"],
            "gradient_accumulation_steps": settings["rows_a_step"] // settings["rows_a_pass"],
            "max_steps": settings["steps"],
            "learning_rate": 1e-4,
            "bf16": settings["precision"] == "bf16",
            "use_cpu": True,
            "output_dir": str(scratch / "out"),
            "overwrite_cache": True,
            "save_strategy": "no",
            "report_to": "none",
            "logging_steps": 1,
        },
        callbacks=[Watching(watch)],
    )
    watch.show()


if __name__ == "__main__":
    main()
