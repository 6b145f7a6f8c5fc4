"""What merging costs an adapter that was trained beside a quantised base, in bits per byte of a text.

Merged weights are floats: the dequantised base, which the adapter saw, plus the update, rounded to the precision that is
written. Scored are base and adapter as trained, and the files as written. Cost: both models once over the text.
"""

from __future__ import annotations

import json
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

from cairn.adapters.attach import attach_saved
from cairn.data.documents import read_documents
from cairn.evaluation.bits_per_byte import bits_per_byte, score_documents
from cairn.models.load import load_model, position_limit
from cairn.records import Document, Source
from cairn.store.store import Adapter

COST_FILE = "merge_cost.json"
BUILT_IN = "objects"
"""A chapter of Python's language reference, 5 kB, which every installation holds."""
WINDOW = 512


def write_merge_cost(adapter: Adapter, folder: Path, tokenizer: Any, text: str | None) -> None:
    """Score both over the Pile-format file `text`, or the built-in text, and write `merge_cost.json` into `folder`."""
    base = adapter.card.base
    quantised = load_model(base.path, precision="fp32", quantization=base.quantization)
    window = min(WINDOW, position_limit(quantised.config) or WINDOW)

    def score(model: Any) -> float:
        return bits_per_byte(score_documents(model, tokenizer, _documents(text), window=window))

    before = score(attach_saved(quantised, adapter.path))
    after = score(load_model(folder, precision="fp32"))
    cost = {
        "text": text or f"the chapter '{BUILT_IN}' of Python's language reference",
        "quantization": base.quantization.model_dump(mode="json") if base.quantization else None,
        "bits_per_byte_as_trained": before,
        "bits_per_byte_merged": after,
    }
    (folder / COST_FILE).write_text(json.dumps(cost, indent=2) + "\n", encoding="utf-8")


def describe_merge_cost(folder: Path) -> list[str]:
    """The written figures as a line; nothing where there are none."""
    if not (folder / COST_FILE).is_file():
        return []
    cost = json.loads((folder / COST_FILE).read_text(encoding="utf-8"))
    before, after = cost["bits_per_byte_as_trained"], cost["bits_per_byte_merged"]
    held = cost["quantization"]["kind"]
    return [
        f"{held} base + adapter {before:.4f} bits per byte, merged {after:.4f} ({after - before:+.4f}): {cost['text']}"
    ]


def _documents(text: str | None) -> list[Document]:
    if text is not None:
        return list(read_documents([text]))
    return [Document(Source("pydoc_data.topics", 1), topics[BUILT_IN])]
