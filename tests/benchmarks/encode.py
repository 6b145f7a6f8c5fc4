"""Chat rows per second from conversations to masked tokens on two processes, beside `datasets.map(num_proc=2)`.

    python -m tests.benchmarks.encode [--rows N] [--rounds N]

Ours makes what training reads: tokens, weights of the answers, packed rows in shard files. The other side calls the
same tokenizer's `apply_chat_template` in `datasets.map`, in batches and row by row, and writes tokens alone: its
template has no marks, so a mask cannot be had there. Its better way counts. Sides take turns and the best round of each
counts. A last line compares the bare encoder in one process with the tokenizer called on texts that are rendered
already: what templates, spans and weights cost. One JSON line a figure.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.benchmarks._figure import sample_model, show

from cairn.data.chunks import CHUNK_RECORDS, Chunk, Shaping, write_chunk
from cairn.data.encoding import Encoder
from cairn.data.rows import Sample
from cairn.models.load import load_tokenizer
from cairn.records import Conversation, Message, Source

PROCESSES = 2
SHAPING = Shaping(sequence_length=2048, truncation="drop", packing=True)
WORDS = 20_000

_work: tuple[Any, list[Chunk]] = (None, [])
"""Tokenizer and chunks, inherited by forked processes as `datasets` hands on its table: neither side pays for copying."""


def main() -> None:
    """Measure and print."""
    global _work
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer = load_tokenizer(sample_model())
    conversations = make_conversations(arguments.rows)
    starts = range(0, arguments.rows, CHUNK_RECORDS)
    chunks = [Chunk(0, i, conversations[a : a + CHUNK_RECORDS], {}, {}, 0) for i, a in enumerate(starts)]
    _work = (tokenizer, chunks)
    rows = [[message.for_template() for message in conversation.messages] for conversation in conversations]
    table = make_table(rows)
    sides: dict[str, Callable[[], tuple[float, int]]] = {
        "cairn": prepare,
        "datasets.map, batched": partial(map_rows, table, tokenizer, batched=True),
        "datasets.map, row by row": partial(map_rows, table, tokenizer, batched=False),
    }
    gc.freeze()  # a collection in a forked process would copy every page of the rows
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    tokens = {}
    for _ in range(arguments.rounds):
        for side, run in sides.items():
            taken, tokens[side] = run()
            seconds[side].append(taken)
    assert len(set(tokens.values())) == 1, tokens
    rates = {side: arguments.rows / min(taken) for side, taken in seconds.items()}
    against = max((side for side in sides if side != "cairn"), key=rates.__getitem__)
    show("encode chat rows, two processes", "rows/s", [rates["cairn"]], [rates[against]], against=against, goal=1.0)
    ours, other = encode_alone(conversations[: arguments.rows // 10], tokenizer)
    against = "the tokenizer on rendered texts"
    show("encoder in one process", "rows/s", [ours], [other], against=against, goal=None)


def make_conversations(count: int) -> list[Conversation]:
    """One to three exchanges of random words, 10 to 80 in a turn, half of them after a system message."""
    chance = random.Random(0)
    letters = "etaoinshrdlucmfwypvbgk"
    words = ["".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(WORDS)]

    def text() -> str:
        return " ".join(chance.choices(words, k=chance.randint(10, 80))) + "."

    made = []
    for line in range(count):
        messages = [Message("system", "Answer in one paragraph.")] if chance.random() < 0.5 else []
        for _ in range(chance.randint(1, 3)):
            messages += [Message("user", text()), Message("assistant", text())]
        made.append(Conversation(Source("made.jsonl", line + 1), tuple(messages)))
    return made


def prepare() -> tuple[float, int]:
    """All chunks to shards: seconds, the start of the processes included, and tokens."""
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        with ProcessPoolExecutor(PROCESSES, mp_context=get_context("fork")) as pool:
            tokens = sum(pool.map(partial(_prepare_chunk, folder), range(len(_work[1]))))
        return time.perf_counter() - begin, tokens


def _prepare_chunk(folder: str, index: int) -> int:
    tokenizer, chunks = _work
    summary = write_chunk(chunks[index], Path(folder), tokenizer, SHAPING)
    assert summary.documents == summary.records, summary
    return summary.tokens + summary.documents


def make_table(rows: list[Any]) -> Any:
    """The rows as `datasets` holds them."""
    import datasets

    datasets.disable_progress_bars()
    datasets.disable_caching()
    return datasets.Dataset.from_dict({"messages": rows})


def map_rows(table: Any, tokenizer: Any, *, batched: bool) -> tuple[float, int]:
    """The same rows through `datasets.map`, uncached: seconds and tokens."""

    def encode(row: dict[str, Any]) -> dict[str, Any]:
        return {"input_ids": tokenizer.apply_chat_template(row["messages"], return_dict=True)["input_ids"]}

    begin = time.perf_counter()
    done = table.map(encode, batched=batched, num_proc=PROCESSES, remove_columns=["messages"])
    seconds = time.perf_counter() - begin
    return seconds, sum(len(ids) for ids in done["input_ids"])


def encode_alone(conversations: list[Conversation], tokenizer: Any) -> tuple[float, float]:
    """(rows/s of the encoder, rows/s of the tokenizer on the rendered texts)."""
    texts = tokenizer.apply_chat_template(
        [[message.for_template() for message in one.messages] for one in conversations], tokenize=False
    )
    begin = time.perf_counter()
    samples = list(Encoder(tokenizer, SHAPING.sequence_length * 4).conversations(conversations))
    middle = time.perf_counter()
    encoded = tokenizer(texts, add_special_tokens=False)["input_ids"]
    end = time.perf_counter()
    assert all(isinstance(a, Sample) and len(a.tokens) == len(b) for a, b in zip(samples, encoded, strict=True))
    return len(conversations) / (middle - begin), len(conversations) / (end - middle)


if __name__ == "__main__":
    main()
