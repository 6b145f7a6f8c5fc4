"""Megabytes of text per second from a jsonl.zst file to lines, documents and tokens, beside the plain tools.

    python -m tests.benchmarks.read [--data FILE] [--model DIR] [--rounds N]

The plain side is zstandard's reader with the stdlib's json, and the tokenizer called on all texts at once. Sides take
turns, since machines drift; a comparison counts as the ratio within one run. One JSON line a figure.
"""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import zstandard
from tests.benchmarks._figure import rates, sample_file, sample_model, show

from cairn.data.documents import read_documents
from cairn.data.encoding import Encoder
from cairn.data.sources.jsonl import read_lines
from cairn.models.load import load_tokenizer
from cairn.records import Document

ENCODED_DOCUMENTS = 200


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="none: the sample corpus")
    parser.add_argument("--model", type=Path, help="a directory; none: SmolLM2-135M-Instruct")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    data = arguments.data or sample_file("train/00.jsonl.zst")
    read(data, arguments.rounds)
    encode(data, load_tokenizer(arguments.model or sample_model()), arguments.rounds)


def read(data: Path, rounds: int) -> None:
    """Documents and bare lines, beside zstandard and json."""
    plain = "zstandard and json"
    sides = {
        "documents": lambda: sum(1 for _ in read_documents([data])),
        "lines": lambda: sum(1 for _ in read_lines(data)),
        plain: lambda: sum(1 for _ in _plain_rows(data)),
    }
    found = rates(sides, _megabytes(read_documents([data])), rounds)
    show("read: documents", "MB/s", found["documents"], found[plain], against=plain, goal=1.0)
    show("read: lines", "MB/s", found["lines"], found[plain], against=plain, goal=None)


def encode(data: Path, tokenizer: Any, rounds: int) -> None:
    """Windows, beside the tokenizer on all texts at once."""
    encoder = Encoder(tokenizer, 1024)
    documents = list(read_documents([data], limit=ENCODED_DOCUMENTS))
    texts = [document.text for document in documents]
    plain = "tokenizer alone"
    sides = {
        "windows": lambda: sum(map(len, encoder.documents(documents))),
        plain: lambda: sum(map(len, tokenizer(texts, add_special_tokens=False)["input_ids"])),
    }
    found = rates(sides, _megabytes(documents), rounds)
    show("encode: windows", "MB/s", found["windows"], found[plain], against=plain, goal=0.8)


def _megabytes(documents: Iterable[Document]) -> float:
    return sum(len(document.text.encode()) for document in documents) / 1e6


def _plain_rows(path: Path) -> Iterator[Any]:
    with zstandard.open(path, "rb") as stream:
        for line in io.BufferedReader(stream):
            yield json.loads(line)


if __name__ == "__main__":
    main()
