"""Decoding with eight adapters mixed in one batch, by the Generator and by transformers with PEFT's `adapter_names`.

    python -m tests.benchmarks.serving [--model DIR] [--rounds N]

32 rows of 32 tokens, every linear adapted at rank 8, fp32, after a warm-up; and the same beside the base alone, which
says what the adapters cost.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from tests.benchmarks._figure import rates, sample_model, show

from cairn.adapters.files import read_lora
from cairn.generation.generator import Generator
from cairn.generation.request import Request
from cairn.models.load import load_model, load_tokenizer

ROWS, TOKENS, ADAPTERS, RANK = 32, 32, 8, 8
PROMPT = "Write one sentence about rivers."


def main() -> None:
    """Measure both and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a directory; none: SmolLM2-135M-Instruct")
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    path = str(arguments.model or sample_model())
    with tempfile.TemporaryDirectory() as root:
        folders = [make_adapter(path, Path(root) / f"a{i}", seed=i) for i in range(ADAPTERS)]
        tokenizer = load_tokenizer(path)
        prompt = tokenizer(PROMPT)["input_ids"]
        base, peft = "generator, base only", "transformers + PEFT adapter_names"
        sides = {
            "mixed": by_generator(path, tokenizer, prompt, folders),
            base: by_generator(path, tokenizer, prompt, []),
            peft: by_peft(path, prompt, folders),
        }
        for run in sides.values():
            run()
        found = rates(sides, ROWS * TOKENS, arguments.rounds)
    name = f"generate, {ROWS} rows with {ADAPTERS} adapters mixed"
    for other, goal in ((peft, 1.0), (base, None)):
        show(name, "tokens/s", found["mixed"], found[other], against=other, goal=goal)


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


def by_generator(path: str, tokenizer: Any, prompt: list[int], folders: list[Path]) -> Callable[[], object]:
    """Answers all rows, reading the prompts included."""
    model = load_model(path, precision="fp32")
    generator = Generator(model, tokenizer, max_running=ROWS, adapter_slots=ADAPTERS, prefill_tokens=512)
    for i, folder in enumerate(folders):
        generator.load(f"a{i}", read_lora(folder))
    requests = [
        Request(tuple(prompt), adapter=f"a{i % ADAPTERS}" if folders else None, max_tokens=TOKENS, ignore_eos=True)
        for i in range(ROWS)
    ]
    return lambda: generator.generate(requests)


def by_peft(path: str, prompt: list[int], folders: list[Path]) -> Callable[[], object]:
    """The same by `generate` over one padded batch."""
    model = PeftModel.from_pretrained(load_model(path, precision="fp32"), folders[0], adapter_name="a0")
    for i, folder in enumerate(folders[1:], start=1):
        model.load_adapter(folder, adapter_name=f"a{i}")
    model.eval()
    ids = torch.tensor([prompt] * ROWS)
    settings: dict[str, Any] = {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS, "do_sample": False}
    names = [f"a{i % ADAPTERS}" for i in range(ROWS)]

    @torch.no_grad()
    def answer() -> object:
        mask = torch.ones_like(ids)
        return model.generate(input_ids=ids, attention_mask=mask, adapter_names=names, pad_token_id=0, **settings)

    return answer


if __name__ == "__main__":
    main()
