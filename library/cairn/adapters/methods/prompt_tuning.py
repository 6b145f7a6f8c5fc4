"""Prompt tuning (Lester et al. 2021, arXiv 2104.08691): trained embeddings before every sample, begun at random, in
tokens of the vocabulary, or in a text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torch
from pydantic import Field
from torch import nn

from cairn.adapters.methods._soft_prompt import SoftPromptMethod, VirtualTokens, embeddings_of, tokens_of
from cairn.models.virtual_tokens import Fixed


class PromptTuning(SoftPromptMethod):
    """A table of embeddings."""

    class Config(VirtualTokens):
        """Number and beginning."""

        prompt_tuning_init: Literal["random", "sample_vocab", "text"] = Field(
            "sample_vocab", description="random vectors, tokens drawn from the vocabulary, or a text's tokens"
        )
        prompt_tuning_init_text: str | None = Field(None, description="the text of prompt_tuning_init=text")

    def problems(self, model: Any) -> Iterator[str]:
        """As for all soft prompts, and a text where one is asked for and nowhere else."""
        yield from super().problems(model)
        if (self.config.prompt_tuning_init == "text") != bool(self.config.prompt_tuning_init_text):
            yield "adapter.prompt_tuning_init=text and adapter.prompt_tuning_init_text go together"

    def prompt(self, model: Any) -> nn.Module:
        """A table, begun as the Config says."""
        count, weight = self.virtual_tokens, model.get_input_embeddings().weight
        if self.config.prompt_tuning_init == "random":
            return Fixed(torch.randn(count, weight.shape[1]))
        if self.config.prompt_tuning_init == "text":
            return Fixed(embeddings_of(tokens_of(self.config.prompt_tuning_init_text, model, count), model))
        return Fixed(embeddings_of(torch.randint(len(weight), (count,), device="cpu").tolist(), model))

    def fields(self, model: Any, names: list[str]) -> dict[str, Any]:
        """PEFT's words are in capitals; with a text it wants a tokenizer's name."""
        found = super().fields(model, names)
        found["prompt_tuning_init"] = found["prompt_tuning_init"].upper()
        if found["prompt_tuning_init"] == "TEXT":
            found["tokenizer_name_or_path"] = str(getattr(model.config, "name_or_path", "") or "base")
        return found

    @classmethod
    def read(cls, config: Any) -> dict[str, Any]:
        """In the Config's small letters."""
        found = super().read(config)
        return found | {"prompt_tuning_init": str(found.get("prompt_tuning_init", "random")).lower()}
