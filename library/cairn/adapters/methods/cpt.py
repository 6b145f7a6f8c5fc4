"""Context-aware prompt tuning (Blau et al. 2024, arXiv 2410.17222): the embeddings of examples in the context, which may
move within a small ball around the tokens that they are.

A token's type, modulo 4: 1 and 3 are of the format, 2 of an input, 4 of a label, which stays as it is. The radius of a
ball is ε · √(width / 2048). Unlike in the paper the labels within the context add no loss of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from pydantic import Field
from torch import nn

from cairn.adapters.methods._soft_prompt import SoftPromptMethod, embeddings_of
from cairn.adapters.soft_prompts import MOST_VIRTUAL_TOKENS, SoftPrompt
from cairn.config.section import Section


class Cpt(SoftPromptMethod):
    """Tokens with a little freedom."""

    ignored = SoftPromptMethod.ignored | {
        "num_virtual_tokens",
        "cpt_mask",
        "opt_weighted_loss_type",
        "opt_loss_decay_factor",
    }

    class Config(Section):
        """The context and its freedom."""

        cpt_token_ids: tuple[int, ...] = Field(
            (0,), min_length=1, max_length=MOST_VIRTUAL_TOKENS, description="the tokens of the context"
        )
        cpt_tokens_type_mask: tuple[int, ...] | None = Field(
            None, description="the type of each, 4 being a label, which stays as it is; none: all of the format"
        )
        opt_projection_epsilon: float = Field(0.1, gt=0, description="radius around the tokens of an input")
        opt_projection_format_epsilon: float = Field(0.1, gt=0, description="radius around the tokens of the format")

    @property
    def virtual_tokens(self) -> int:
        """As many as the context has."""
        return len(self.config.cpt_token_ids)

    @property
    def _types(self) -> tuple[int, ...]:
        return self.config.cpt_tokens_type_mask or (1,) * self.virtual_tokens

    def problems(self, model: Any) -> Iterator[str]:
        """As for all soft prompts, tokens that are none, and types that are not one for each."""
        yield from super().problems(model)
        size = model.get_input_embeddings().weight.shape[0]
        for token in self.config.cpt_token_ids:
            if not 0 <= token < size:
                yield f"adapter.cpt_token_ids has {token}, the vocabulary has {size} tokens"
        if len(self._types) != self.virtual_tokens:
            yield f"adapter.cpt_tokens_type_mask has {len(self._types)} types for {self.virtual_tokens} tokens"
        if all(kind % 4 == 0 for kind in self._types):
            yield "adapter.cpt_tokens_type_mask leaves nothing to train"

    def prompt(self, model: Any) -> nn.Module:
        """The tokens' embeddings and what each may move."""
        rows, config = embeddings_of(list(self.config.cpt_token_ids), model), self.config
        of_format, of_input = config.opt_projection_format_epsilon, config.opt_projection_epsilon
        of_kind = (0.0, of_format, of_input, of_format)
        radii = torch.tensor([of_kind[kind % 4] for kind in self._types], device=rows.device)
        return Near(rows, radii[:, None] * (rows.shape[1] / 2048) ** 0.5)

    def again(self, model: Any, prompt: SoftPrompt) -> nn.Module:
        """As far from the tokens as `prompt` is."""
        near = self.prompt(model)
        assert isinstance(near, Near)
        with torch.no_grad():
            near.difference.copy_(prompt.values.to(near.rows) - near.rows)
        return near

    def fields(self, model: Any, names: list[str]) -> dict[str, Any]:
        """As lists, which PEFT reads."""
        found = self.config.model_dump()
        return found | {"cpt_token_ids": list(self.config.cpt_token_ids), "cpt_tokens_type_mask": list(self._types)}


class Near(nn.Module):
    """Rows [n, width] plus a trained difference, no longer than `radii` [n, 1]."""

    rows: torch.Tensor
    radii: torch.Tensor

    def __init__(self, rows: torch.Tensor, radii: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("rows", rows)
        self.register_buffer("radii", radii)
        self.difference = nn.Parameter(torch.zeros_like(rows))

    def forward(self) -> torch.Tensor:
        """[n, width]."""
        length = (self.difference.square().sum(1, keepdim=True) + 1e-20).sqrt()
        return self.rows + self.difference * (self.radii / length).clamp(max=1)
