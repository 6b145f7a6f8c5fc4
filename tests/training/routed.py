"""A store with adapters of the tiny model, each published with the recipe that names its training data."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tests.generation.lora import save_lora

from cairn.models.identity import base_sha256, tokenizer_sha256
from cairn.models.load import load_tokenizer
from cairn.store.card import Base, Facts
from cairn.store.store import Store
from cairn.training.folder import RUN

KINDS = {"words": "abcde", "numbers": "01234"}


def texts(kind: str, count: int, *, seed: int = 0) -> list[str]:
    """Random questions of one kind."""
    source = random.Random(f"{kind}{seed}")
    return ["".join(source.choices(KINDS[kind], k=source.randint(30, 60))) for _ in range(count)]


def write_questions(path: Path, kind: str, count: int) -> Path:
    """Conversations, each with one answer that tells nothing of the kind."""
    lines = [
        {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": "Yes."}]}
        for text in texts(kind, count)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def publish_trained(storage: Path, tiny: Path, data: Path, *, count: int = 60, **changes: Any) -> None:
    """words@1 and numbers@1. `changes`: of the facts."""
    for seed, kind in enumerate(KINDS):
        folder = save_lora(data / f"{kind}-{seed}", rank=4, seed=seed)
        file = write_questions(data / f"{kind}.jsonl", kind, count)
        recipe = {"data": {"train": [str(file)]}, "stage": {"name": "sft"}}
        (folder / RUN).write_text(json.dumps({"recipe": recipe}))
        known: dict[str, Any] = {
            "base": Base.parse({"path": str(tiny), "sha256": base_sha256(tiny)}),
            "tokenizer_sha256": tokenizer_sha256(load_tokenizer(tiny)),
            "method": "lora",
            "stage": "sft",
        }
        Store(storage / "adapters").publish(kind, folder, Facts(**{**known, **changes}))
