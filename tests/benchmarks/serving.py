"""Decoding with eight adapters mixed in one batch, by the Generator and by transformers with PEFT's `adapter_names`.

`python -m tests.benchmarks.serving [--model DIR]`: 32 rows × 32 tokens, every linear adapted at rank 8, fp32; one JSON
line a measurement: {"name", "value", "unit", "settings"}. One run after a warm-up.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model

from cairn.adapters.files import read_lora
from cairn.config import home
from cairn.generation.generator import Generator
from cairn.generation.request import Request
from cairn.models.load import load_model, load_tokenizer

ROWS, TOKENS, ADAPTERS, RANK, REPEATS = 32, 32, 8, 8, 1
PROMPT = "Write one sentence about rivers."


def main() -> None:
    """Measure both and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=str(home.models() / "SmolLM2-135M-Instruct"), help="a model directory")
    path = parser.parse_args().model
    with tempfile.TemporaryDirectory() as root:
        folders = [make_adapter(path, Path(root) / f"a{i}", seed=i) for i in range(ADAPTERS)]
        tokenizer = load_tokenizer(path)
        prompt = tokenizer(PROMPT)["input_ids"]
        show("generator, 8 adapters mixed", by_generator(path, tokenizer, prompt, folders))
        show("generator, base only", by_generator(path, tokenizer, prompt, []))
        show("transformers + PEFT adapter_names, 8 adapters mixed", by_peft(path, prompt, folders))


def make_adapter(path: str, folder: Path, *, seed: int) -> Path:
    """A random LoRA over all linears."""
    config = LoraConfig(task_type="CAUSAL_LM", r=RANK, lora_alpha=2 * RANK, target_modules="all-linear")
    model = get_peft_model(load_model(path, precision="fp32"), config)
    torch.manual_seed(seed)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.01)
    model.save_pretrained(folder)
    return folder


def by_generator(path: str, tokenizer: Any, prompt: list[int], folders: list[Path]) -> float:
    """Tokens per second, reading the prompts included."""
    model = load_model(path, precision="fp32")
    generator = Generator(model, tokenizer, max_running=ROWS, adapter_slots=ADAPTERS, prefill_tokens=512)
    for i, folder in enumerate(folders):
        generator.load(f"a{i}", read_lora(folder))
    requests = [
        Request(tuple(prompt), adapter=f"a{i % ADAPTERS}" if folders else None, max_tokens=TOKENS, ignore_eos=True)
        for i in range(ROWS)
    ]
    return best(lambda: generator.generate(requests))


def by_peft(path: str, prompt: list[int], folders: list[Path]) -> float:
    """The same by `generate` over one padded batch."""
    model = PeftModel.from_pretrained(load_model(path, precision="fp32"), folders[0], adapter_name="a0")
    for i, folder in enumerate(folders[1:], start=1):
        model.load_adapter(folder, adapter_name=f"a{i}")
    model.eval()
    ids = torch.tensor([prompt] * ROWS)
    settings: dict[str, Any] = {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS, "do_sample": False}
    names = [f"a{i % ADAPTERS}" for i in range(ROWS)]
    with torch.no_grad():
        return best(
            lambda: model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), adapter_names=names, pad_token_id=0, **settings
            )
        )


def best(run: Callable[[], Any]) -> float:
    """Tokens per second of a run after a warm-up; of the fastest where REPEATS asks for more."""
    run()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return ROWS * TOKENS / min(times)


def show(name: str, value: float) -> None:
    """One JSON line."""
    settings = {"rows": ROWS, "tokens": TOKENS, "adapters": ADAPTERS, "rank": RANK, "threads": torch.get_num_threads()}
    print(json.dumps({"name": name, "value": round(value, 1), "unit": "tokens/s", "settings": settings}), flush=True)


if __name__ == "__main__":
    main()
