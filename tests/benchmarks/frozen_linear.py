"""The frozen linear against torch's own on SmolLM2: scoring a window of 1024 tokens, decoding 8 rows; fp32 and bf16.

Run as `python -m tests.benchmarks.frozen_linear`; a JSON line a figure, some two minutes on two cores. Plain and
prepacked runs take turns. The goals are the
lower ends of the design's section 9; they were measured on a CPU with AVX-512, and a line says whether they hold here.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import torch
from tests.benchmarks._figure import sample_model, show

from cairn.models.kernels.frozen_linear import use_frozen_linears
from cairn.models.load import load_model

GOALS = {("scoring", "fp32"): 1.7, ("decoding", "fp32"): 2.3, ("scoring", "bf16"): 0.95, ("decoding", "bf16"): 1.2}
WINDOW_TOKENS = 1024
ROWS = 8
DECODE_STEPS = 16
ROUNDS = 3


def score_s(model: Any) -> float:
    """Seconds for the logits of one window."""
    tokens = torch.arange(WINDOW_TOKENS)[None] * 37 % 40_000
    begin = time.perf_counter()
    model(input_ids=tokens, use_cache=False)
    return time.perf_counter() - begin


def decode_s(model: Any) -> float:
    """Seconds for the decoding steps of several rows after a short prompt."""
    tokens = torch.arange(ROWS * 8).reshape(ROWS, 8) * 37 % 40_000
    cache = model(input_ids=tokens, use_cache=True).past_key_values
    begin = time.perf_counter()
    for step in range(DECODE_STEPS):
        model(input_ids=tokens[:, step % 8, None], past_key_values=cache, use_cache=True)
    return time.perf_counter() - begin


WORK: dict[str, tuple[Callable[[Any], float], int]] = {
    "scoring": (score_s, WINDOW_TOKENS),
    "decoding": (decode_s, ROWS * DECODE_STEPS),
}


def main() -> None:
    """Measure and print."""
    path = sample_model()
    for precision in ("fp32", "bf16"):
        plain = load_model(path, precision=precision)
        packed = copy.deepcopy(plain)
        changed = use_frozen_linears(packed, training=False)
        for work, (seconds, tokens) in WORK.items():
            with torch.inference_mode():
                taken = [(seconds(packed), seconds(plain)) for _ in range(ROUNDS)]
            ours, other = ([tokens / time for time in times] for times in zip(*taken, strict=True))
            against = f"torch's F.linear ({changed} layers packed, {torch.get_num_threads()} threads)"
            show(
                f"frozen linear, {work}, {precision}",
                "tokens/s",
                ours,
                other,
                against=against,
                goal=GOALS[work, precision],
            )


if __name__ == "__main__":
    main()
