"""Scored tokens per second of SmolLM2 in fp32, window 1024, beside lm-evaluation-harness at batch size 1.

    python -m tests.benchmarks.bpb [--model DIR] [--data FILE] [--tokens N] [--rounds N]

Both score the same documents, in turns, and must agree. lm-eval 0.4.13 was measured at 468 tokens/s on two cores.
"""

from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks._figure import rates, sample_file, sample_model, show

from cairn.records import Document

WINDOW = 1024
GOAL = 1.7
AGREEMENT = 1e-4
HARNESS = "lm-eval, batch 1"


def main() -> None:
    """Measure and print."""
    import torch

    from cairn.evaluation.subject import Subject
    from cairn.models.load import load_model

    arguments = _arguments()
    torch.set_num_threads(os.cpu_count() or 1)
    path = arguments.model or sample_model()
    subject = Subject(str(path))
    tokenizer = subject.load_tokenizer()
    documents = _documents(arguments.data or sample_file("test.jsonl.zst"), tokenizer, arguments.tokens)
    ours, plain = subject.load(), load_model(path, precision="fp32")
    nats: dict[str, list[float]] = {}

    def score(side: str) -> None:
        scorer, model = (_cairn, ours) if side == "cairn" else (_harness, plain)
        nats[side] = scorer(model, tokenizer, documents)

    tokens = sum(len(tokenizer(document.text, add_special_tokens=False)["input_ids"]) for document in documents)
    found = rates({side: partial(score, side) for side in ("cairn", HARNESS)}, tokens, arguments.rounds)
    worst = max(abs(a - b) / b for a, b in zip(nats["cairn"], nats[HARNESS], strict=True))
    assert worst < AGREEMENT, f"the two sides score a document differently by {worst:.1e}"
    show("bpb, fp32, window 1024", "tokens/s", found["cairn"], found[HARNESS], against=HARNESS, goal=GOAL)


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
    parser.add_argument("--model", type=Path, help="a directory; none: SmolLM2-135M-Instruct")
    parser.add_argument("--data", type=Path, help="none: the sample corpus")
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
