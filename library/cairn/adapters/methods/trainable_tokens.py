"""Trainable tokens: the embeddings of a few tokens are trained and no other, for words that a template or a tokenizer
added. Only these rows are saved. A tied head speaks with the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from cairn.adapters.method import Capabilities
from cairn.adapters.methods._tokens import token_problems
from cairn.adapters.peft_method import PeftMethod
from cairn.config.section import Section
from cairn.models.unwrap import base_of


class TrainableTokens(PeftMethod):
    """Rows of the embedding."""

    can = Capabilities(layers=("Embedding",), converts="no")

    class Config(Section):
        """Which rows."""

        tokens: tuple[int, ...] = Field(
            (0,), serialization_alias="token_indices", min_length=1, description="ids of the tokens"
        )

    def find(self, model: Any) -> list[str]:
        """The input embedding's path."""
        base = base_of(model)
        return [path for path, module in base.named_modules() if module is base.get_input_embeddings()][:1]

    def problems(self, model: Any) -> Iterator[str]:
        """Ids outside the vocabulary, or named twice."""
        yield from token_problems(self.config.tokens, model)

    def fields(self, model: Any, names: list[str]) -> dict[str, Any]:
        """The ids, as PEFT wants them."""
        return {"token_indices": list(self.config.tokens)}
