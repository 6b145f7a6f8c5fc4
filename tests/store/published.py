"""LoRAs of the tiny base, published as a run publishes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.generation.lora import save_lora

from cairn.models.identity import base_sha256, tokenizer_sha256
from cairn.models.load import load_tokenizer
from cairn.store.card import Base, Facts
from cairn.store.store import Adapter, Store


def publish_lora(
    store: Store, name: str, model: Path, folder: Path, *, seed: int = 1, rank: int = 4, **card: Any
) -> Adapter:
    """A LoRA that changes every answer, with the tokenizer of its base beside it."""
    save_lora(folder, rank=rank, seed=seed)
    (folder / "README.md").unlink()
    tokenizer = load_tokenizer(model)
    tokenizer.save_pretrained(folder)
    facts = {
        "base": Base(path=str(model), sha256=base_sha256(model)),
        "method": "lora",
        "stage": "sft",
        "rank": rank,
        "tokenizer_sha256": tokenizer_sha256(tokenizer),
        **card,
    }
    return store.publish(name, folder, Facts(**facts))
