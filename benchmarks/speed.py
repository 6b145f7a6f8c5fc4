"""Speeds that the design counts on, measured on this machine: `make bench`, about three minutes on two cores.

Each figure has a name, a unit and what it is compared with; the plain way and ours are measured in turn, best of some,
so that a busy machine disturbs both alike. Written to `benchmarks.json` under CAIRN_HOME as well.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch

from cairn.cli.terminal import say, show_table
from cairn.config import home
from cairn.generation.generator import Generator
from cairn.generation.request import Request
from cairn.models.kernels.frozen_linear import use_frozen_linears
from cairn.models.load import load_model, load_tokenizer
from cairn.models.sample import fetch_smollm2
from cairn.store.durable import replace_file

SCORED_TOKENS = 512
TRAINED_TOKENS = 256
ANSWER_TOKENS = 32
REPEATS = 3


@dataclass(frozen=True)
class Figure:
    """One measurement; `plain` is the same work without what is measured, in the same unit."""

    name: str
    unit: str
    value: float
    plain: float | None = None

    @property
    def gain(self) -> str:
        """How many times as fast as plain."""
        return f"{self.value / self.plain:.2f}×" if self.plain else ""


def seconds(work: Callable[[], Any]) -> float:
    """The best of some, after one to warm up."""
    work()
    taken = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return min(taken)


def command_start() -> Iterator[Figure]:
    """The wait for `cairn --help`."""
    taken = seconds(lambda: subprocess.run([sys.executable, "-m", "cairn", "--help"], capture_output=True, check=True))
    yield Figure("cairn --help", "s", taken)


def scoring(path: str) -> Iterator[Figure]:
    """Tokens per second through the model, in evaluation."""
    tokens = torch.arange(SCORED_TOKENS)[None] % 40_000
    for precision in ("fp32", "bf16"):
        speeds = []
        for frozen in (False, True):
            model = load_model(path, precision=precision)
            if frozen:
                use_frozen_linears(model, training=False)
            with torch.inference_mode():
                speeds.append(SCORED_TOKENS / seconds(lambda model=model: model(tokens, logits_to_keep=1)))
        yield Figure(f"scoring, {precision}", "tokens/s", speeds[1], speeds[0])


def training(path: str) -> Iterator[Figure]:
    """Tokens per second forward and backward with a frozen base: the gradient reaches the first layer's input."""
    speeds = []
    tokens = torch.arange(TRAINED_TOKENS)[None] % 40_000
    for frozen in (False, True):
        model = load_model(path, precision="fp32").requires_grad_(False)
        if frozen:
            use_frozen_linears(model, training=True)
        inputs = model.get_input_embeddings()(tokens).detach().requires_grad_(True)

        def step(model: Any = model, inputs: torch.Tensor = inputs) -> None:
            model(inputs_embeds=inputs, logits_to_keep=1).logits.sum().backward()

        speeds.append(TRAINED_TOKENS / seconds(step))
    yield Figure("training through a frozen base, fp32", "tokens/s", speeds[1], speeds[0])


def generation(path: str) -> Iterator[Figure]:
    """Tokens per second of answers, alone and many at once."""
    tokenizer = load_tokenizer(path)
    prompt = tuple(tokenizer("The standard library of Python holds")["input_ids"])
    request = Request(prompt, max_tokens=ANSWER_TOKENS, ignore_eos=True)
    generator = Generator(load_model(path, precision="fp32"), tokenizer, max_length=256)
    alone = ANSWER_TOKENS / seconds(lambda: generator.generate([request]))
    for count in (1, 4, 16):
        speed = count * ANSWER_TOKENS / seconds(lambda count=count: generator.generate([request] * count))
        yield Figure(f"generation, {count} at once, fp32", "tokens/s", speed, alone)


def main() -> None:
    """Measure everything, show it, write it down."""
    path = str(fetch_smollm2(home.models()))
    figures = [*command_start(), *scoring(path), *training(path), *generation(path)]
    rows = [(figure.name, f"{figure.value:.2f} {figure.unit}", figure.plain, figure.gain) for figure in figures]
    show_table(("measured", "value", "compared with", "gain"), rows, title=f"{torch.get_num_threads()} threads")
    written = home.home() / "benchmarks.json"
    replace_file(written, json.dumps([asdict(figure) for figure in figures], indent=1) + "\n")
    say(f"figures: {written}")


if __name__ == "__main__":
    main()
