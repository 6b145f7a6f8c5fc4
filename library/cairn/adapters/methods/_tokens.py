"""Ids of tokens whose embeddings are trained, held against the vocabulary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cairn.models.unwrap import text_config


def token_problems(tokens: Sequence[int], model: Any) -> Iterator[str]:
    """Ids outside the vocabulary, or named twice."""
    size = text_config(model).vocab_size
    for token in sorted(set(tokens)):
        if not 0 <= token < size:
            yield f"adapter.tokens has {token}, the vocabulary has {size} tokens"
    if len(set(tokens)) < len(tokens):
        yield "adapter.tokens names a token twice"
