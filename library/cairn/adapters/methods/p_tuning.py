"""P-tuning (Liu et al. 2021, arXiv 2103.10385): prompt tuning whose vectors come out of a small network while they are
trained; saved are the vectors. PEFT's own network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field
from torch import nn

from cairn.adapters.methods._soft_prompt import Encoded, SoftPromptMethod, VirtualTokens


class PTuning(SoftPromptMethod):
    """Embeddings out of an MLP or an LSTM."""

    class Config(VirtualTokens):
        """Number and network."""

        encoder_reparameterization_type: Literal["MLP", "LSTM"] = Field("MLP", description="the network")
        encoder_hidden_size: int | None = Field(None, ge=1, description="its width; none: that of an embedding")
        encoder_num_layers: int = Field(2, ge=1, description="layers of the LSTM; an MLP has two")
        encoder_dropout: float = Field(0.0, ge=0, lt=1, description="dropout of the LSTM")

    def problems(self, model: Any) -> Iterator[str]:
        """As for all soft prompts, and what an MLP does not take."""
        yield from super().problems(model)
        of_lstm = (self.config.encoder_num_layers, self.config.encoder_dropout)
        if self.config.encoder_reparameterization_type == "MLP" and of_lstm != (2, 0):
            yield "adapter.encoder_num_layers and adapter.encoder_dropout are of encoder_reparameterization_type=LSTM"

    def prompt(self, model: Any) -> nn.Module:
        """PEFT's encoder."""
        from peft import PromptEncoder

        return Encoded(PromptEncoder(self.fresh_config(model)), self.virtual_tokens)
