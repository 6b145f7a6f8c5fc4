"""Cartridges (Eyuboglu et al. 2025, arXiv 2506.06266): trained keys and values, begun as those that the base leaves behind
when it reads a text. The first token is not trained, for models look at it when they look at nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from pydantic import Field
from torch import nn

from cairn.adapters.methods._soft_prompt import SoftPromptMethod, VirtualTokens, tokens_of
from cairn.adapters.soft_prompts import SoftPrompt, prompt_width
from cairn.models.virtual_tokens import keys_and_values


class Cartridge(SoftPromptMethod):
    """A text's keys and values, trained on."""

    into_keys = True
    can = replace(SoftPromptMethod.can, layers=("Attention",), checkpointing=False)

    class Config(VirtualTokens):
        """Number and beginning."""

        num_frozen_tokens: int = Field(1, ge=0, description="of the first virtual tokens, which are not trained")
        text: str | None = Field(None, description="what they begin in, its first tokens; none: random numbers")

    def problems(self, model: Any) -> Iterator[str]:
        """As for all soft prompts, and nothing to train."""
        yield from super().problems(model)
        if self.config.num_frozen_tokens >= self.virtual_tokens:
            yield f"adapter.num_frozen_tokens={self.config.num_frozen_tokens} leaves nothing to train"

    def prompt(self, model: Any) -> nn.Module:
        """The text's, or random numbers."""
        if self.config.text is None:
            return self._frozen_first(torch.randn(self.virtual_tokens, prompt_width(model, into_keys=True)))
        return self._frozen_first(keys_and_values(model, tokens_of(self.config.text, model, self.virtual_tokens)))

    def again(self, model: Any, prompt: SoftPrompt) -> nn.Module:
        """With the same of them frozen."""
        return self._frozen_first(prompt.values)

    def _frozen_first(self, values: torch.Tensor) -> nn.Module:
        return FrozenFirst(values, self.config.num_frozen_tokens)

    def fields(self, model: Any, names: list[str]) -> dict[str, Any]:
        """PEFT knows of no text."""
        return {name: value for name, value in super().fields(model, names).items() if name != "text"}


class FrozenFirst(nn.Module):
    """`values` [n, width], of which the first `frozen` stay as they are."""

    first: torch.Tensor

    def __init__(self, values: torch.Tensor, frozen: int) -> None:
        super().__init__()
        self.register_buffer("first", values[:frozen].clone())
        self.rest = nn.Parameter(values[frozen:].clone())

    def forward(self) -> torch.Tensor:
        """[n, width]."""
        return torch.cat([self.first, self.rest])
