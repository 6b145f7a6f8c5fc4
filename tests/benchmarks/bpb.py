"""Scored tokens per second of SmolLM2 in fp32, window 1024, beside lm-evaluation-harness at batch size 1.

    python -m tests.benchmarks.bpb [--model DIR] [--data FILE] [--tokens N] [--rounds N]

Both score the same documents, in turns, since machines drift; a comparison counts as the ratio within one run. One JSON
line a measurement and one with the ratio and its goal (lm-eval 0.4.13 was measured at 468 tokens/s on two cores).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cairn.config import home
from cairn.records import Document

WINDOW = 1024
GOAL_RATIO = 1.7


def main() -> None:
    """Measure and print."""
    import torch

    from cairn.evaluation.subject import Subject
    from cairn.models.load import load_model

    arguments = _arguments()
    torch.set_num_threads(os.cpu_count() or 1)
    subject = Subject(str(arguments.model))
    tokenizer = subject.load_tokenizer()
    documents = _documents(arguments.data, tokenizer, arguments.tokens)
    ours, plain = subject.load(), load_model(arguments.model, precision="fp32")
    sides: dict[str, Callable[[], list[float]]] = {
        "cairn": lambda: _cairn(ours, tokenizer, documents),
        "lm-eval batch 1": lambda: _harness(plain, tokenizer, documents),
    }
    tokens = sum(len(tokenizer(document.text, add_special_tokens=False)["input_ids"]) for document in documents)
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(arguments.rounds):
        nats = {}
        for name, run in sides.items():
            start = time.perf_counter()
            nats[name] = run()
            seconds = time.perf_counter() - start
            rates[name].append(tokens / seconds)
            _print(what="bpb", side=name, round=number, tokens=tokens, seconds=seconds, tokens_per_s=tokens / seconds)
        mine, theirs = (nats[name] for name in sides)
        worst = max(abs(a - b) / b for a, b in zip(mine, theirs, strict=True))
        _print(what="bpb", largest_relative_difference=worst, documents=len(documents))
    ratio = statistics.median(a / b for a, b in zip(*rates.values(), strict=True))
    _print(what="bpb", ratio=ratio, goal=GOAL_RATIO, reached=ratio >= GOAL_RATIO, window=WINDOW, precision="fp32")


def _cairn(model: Any, tokenizer: Any, documents: list[Document]) -> list[float]:
    from cairn.evaluation.bits_per_byte import score_documents

    return [score.nats for score in score_documents(model, tokenizer, documents, window=WINDOW)]


def _harness(model: Any, tokenizer: Any, documents: list[Document]) -> list[float]:
    from tests.evaluation.oracle import harness_nats

    return harness_nats(model, tokenizer, [document.text for document in documents], window=WINDOW)


def _documents(path: Path, tokenizer: Any, tokens: int) -> list[Document]:
    """The first documents of every subset in turn, until there are about `tokens` of them."""
    from cairn.data.documents import read_documents

    queues: dict[str, list[Document]] = {}
    for document in read_documents([path]):
        queues.setdefault(document.subset, []).append(document)
    chosen: list[Document] = []
    while tokens > 0 and any(queues.values()):
        for queue in queues.values():
            if queue and tokens > 0:
                chosen.append(queue.pop(0))
                tokens -= len(tokenizer(chosen[-1].text, add_special_tokens=False, verbose=False)["input_ids"])
    return chosen


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=home.models() / "SmolLM2-135M-Instruct")
    parser.add_argument("--data", type=Path, default=home.samples() / "test.jsonl.zst")
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def _print(**fields: Any) -> None:
    print(json.dumps({key: round(value, 7) if isinstance(value, float) else value for key, value in fields.items()}))


if __name__ == "__main__":
    main()
