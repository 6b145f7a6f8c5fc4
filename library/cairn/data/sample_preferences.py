"""A preference set of the Python installation: for each function's signature, its docstring against a worse one.

The worse answer is, for every other function, the docstring of another function of the same module, and for the others
the right docstring broken off in the middle. What is better is thus no matter of taste, and neither kind can be told by
its length alone. Deterministic: the choice hangs on the texts only.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cairn.data.stdlib_text import Example


def write_preferences(path: Path, examples: Sequence[Example], task: str) -> None:
    """One line an example, as TRL has them: `prompt`, `chosen` and `rejected`, messages each."""
    rows = (_row(example, worse, task) for example, worse in _pairs(examples))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _row(example: Example, worse: str, task: str) -> dict[str, Any]:
    return {
        "prompt": [{"role": "user", "content": f"{task}\n{example.signature}"}],
        "chosen": [{"role": "assistant", "content": example.docstring}],
        "rejected": [{"role": "assistant", "content": worse}],
    }


def _pairs(examples: Sequence[Example]) -> Iterator[tuple[Example, str]]:
    """Each example with its worse docstring; no docstring stands twice among the examples."""
    modules: dict[str, list[Example]] = defaultdict(list)
    for example in examples:
        modules[_module(example)].append(example)
    for example in examples:
        others = modules[_module(example)]
        digest = hashlib.sha256(example.docstring.encode()).digest()
        if digest[0] % 2 and len(others) > 1:
            yield example, others[(others.index(example) + 1) % len(others)].docstring
        else:
            yield example, _broken_off(example.docstring)


def _module(example: Example) -> str:
    return example.signature.partition("\n")[0]


def _broken_off(text: str) -> str:
    """The first half of the words, without the punctuation that may end it."""
    cut = len(text) // 2
    return text[: text.rfind(" ", 0, cut) if " " in text[:cut] else cut].rstrip(" \n.,;:")
