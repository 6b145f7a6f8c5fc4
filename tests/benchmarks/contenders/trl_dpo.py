"""TRL's DPO with a reference computed before the first step, on plain torch."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from tests.benchmarks.contenders.stopwatch import Stopwatch
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainerCallback
from trl import DPOConfig, DPOTrainer


class Watching(TrainerCallback):
    """Tells the stopwatch of every step."""

    def __init__(self, watch: Stopwatch, rows_a_step: int) -> None:
        self.watch, self.rows_a_step = watch, rows_a_step

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """An optimizer step is done."""
        self.watch.add(pairs=self.rows_a_step)
        self.watch.step_ends()


def main() -> None:
    """Train as the settings say."""
    settings = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(settings["threads"])
    watch = Stopwatch(settings["warmup"])
    precise = settings["precision"] == "fp32"
    model = AutoModelForCausalLM.from_pretrained(settings["model"], dtype=torch.float32 if precise else torch.bfloat16)
    pairs = [json.loads(line) for line in Path(settings["data"]).read_text().splitlines()]
    trainer: Trainer = DPOTrainer(
        model,
        args=DPOConfig(
            output_dir=str(Path(settings["scratch"]) / "out"),
            per_device_train_batch_size=settings["rows_a_pass"],
            gradient_accumulation_steps=settings["rows_a_step"] // settings["rows_a_pass"],
            max_steps=settings["steps"],
            max_length=settings["length"],
            precompute_ref_log_probs=True,
            learning_rate=1e-4,
            bf16=not precise,
            gradient_checkpointing=False,
            use_cpu=True,
            save_strategy="no",
            report_to="none",
        ),
        train_dataset=Dataset.from_list(pairs),
        processing_class=AutoTokenizer.from_pretrained(settings["model"]),
        peft_config=LoraConfig(
            r=settings["rank"], lora_alpha=2 * settings["rank"], target_modules="all-linear", task_type="CAUSAL_LM"
        ),
        callbacks=[Watching(watch, settings["rows_a_step"])],
    )
    trainer.train()
    watch.show()


if __name__ == "__main__":
    main()
