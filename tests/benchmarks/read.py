"""Megabytes of text per second from a jsonl.zst file to lines, documents and tokens, beside the plain tools.

    python -m tests.benchmarks.read [--data FILE] [--model DIR] [--rounds N]

The plain side is zstandard's reader with the stdlib's json, and the tokenizer called on all texts at once. Sides take
turns, since machines drift; a comparison counts as the ratio within one run. One JSON line a figure.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import zstandard

from cairn.config import home
from cairn.data.documents import read_documents
from cairn.data.encoding import Encoder
from cairn.data.sources.jsonl import read_lines

ENCODED_DOCUMENTS = 200


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=home.samples() / "train" / "00.jsonl.zst")
    parser.add_argument("--model", type=Path, default=home.models() / "SmolLM2-135M-Instruct")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    megabytes = sum(len(document.text.encode()) for document in read_documents([arguments.data])) / 1e6
    reading = {
        "lines": lambda: sum(1 for _ in read_lines(arguments.data)),
        "documents": lambda: sum(1 for _ in read_documents([arguments.data])),
        "zstandard and json": lambda: sum(1 for _ in _plain_rows(arguments.data)),
    }
    _measure("read", reading, megabytes, arguments.rounds, mine="documents", plain="zstandard and json", goal=1.0)
    _encode(arguments)


def _encode(arguments: Any) -> None:
    from cairn.models.load import load_tokenizer

    tokenizer = load_tokenizer(arguments.model)
    encoder = Encoder(tokenizer, 1024)
    documents = list(read_documents([arguments.data], limit=ENCODED_DOCUMENTS))
    texts = [document.text for document in documents]
    sides = {
        "windows": lambda: sum(map(len, encoder.documents(documents))),
        "tokenizer alone": lambda: sum(map(len, tokenizer(texts, add_special_tokens=False)["input_ids"])),
    }
    megabytes = sum(len(document.text.encode()) for document in documents) / 1e6
    _measure("encode", sides, megabytes, arguments.rounds, mine="windows", plain="tokenizer alone", goal=0.8)


def _plain_rows(path: Path) -> Iterator[Any]:
    with zstandard.open(path, "rb") as stream:
        for line in io.BufferedReader(stream):
            yield json.loads(line)


def _measure(
    name: str, sides: dict[str, Callable[[], int]], megabytes: float, rounds: int, *, mine: str, plain: str, goal: float
) -> None:
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, run in sides.items():
            start = time.perf_counter()
            run()
            rates[side].append(megabytes / (time.perf_counter() - start))
    ratio = statistics.median(a / b for a, b in zip(rates[mine], rates[plain], strict=True))
    figure = {
        "name": f"{name}: {mine}",
        "ours": round(statistics.median(rates[mine]), 2),
        "other": round(statistics.median(rates[plain]), 2),
        "against": plain,
        "unit": "MB/s",
        "ratio": round(ratio, 3),
        "goal": goal,
        "holds": ratio >= goal,
    }
    print(json.dumps(figure), flush=True)


if __name__ == "__main__":
    main()
