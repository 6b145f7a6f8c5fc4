"""Prefix tuning (Li and Liang 2021, arXiv 2101.00190): trained keys and values before every sample, in every layer;
with `prefix_projection` out of a network while they are trained."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field
from torch import nn

from cairn.adapters.methods._soft_prompt import Encoded, SoftPromptMethod, VirtualTokens


class PrefixTuning(SoftPromptMethod):
    """A table of keys and values."""

    into_keys = True
    can = replace(SoftPromptMethod.can, layers=("Attention",), checkpointing=False)

    class Config(VirtualTokens):
        """Number and network."""

        prefix_projection: bool = Field(False, description="compute them by a network of two layers")
        encoder_hidden_size: int | None = Field(None, ge=1, description="its width; none: that of a layer's keys")
        init_weights: Literal["zero"] | None = Field(None, description="zero: begin at zero instead of at random")

    def prompt(self, model: object) -> nn.Module:
        """PEFT's encoder."""
        from peft import PrefixEncoder

        return Encoded(PrefixEncoder(self.fresh_config(model)), self.virtual_tokens)
