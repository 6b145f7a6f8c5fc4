"""What the methods of virtual tokens share: vectors that stand before every sample, and a base that stays as it is.

How they enter the model is `cairn.models.virtual_tokens`; the file is PEFT's. A method's file says where its vectors
begin and what computes them while they are trained; saved are the vectors alone, and training goes on from those.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import nn

from cairn.adapters.method import Capabilities
from cairn.adapters.peft_config import SPEAKS
from cairn.adapters.peft_method import PeftMethod, peft_class
from cairn.adapters.soft_prompts import MOST_VIRTUAL_TOKENS, SoftPrompt, prompt_of, prompt_width, write_prompt
from cairn.config.section import Section
from cairn.errors import AdapterError, ModelError
from cairn.models.load import load_tokenizer, position_limit
from cairn.models.scores import HEAD
from cairn.models.unwrap import base_of, text_config
from cairn.models.virtual_tokens import Fixed, Prompted, key_shape


class VirtualTokens(Section):
    """How many."""

    num_virtual_tokens: int = Field(
        20, ge=1, le=MOST_VIRTUAL_TOKENS, description="vectors before every sample, counted in the window"
    )


class SoftPromptMethod(PeftMethod):
    """`into_keys`: its vectors are keys and values of every layer, not embeddings."""

    can = Capabilities(layers=("Embedding",), quantised=True, merges=False, converts="no")
    starts_as_base = False
    into_keys: ClassVar[bool] = False
    fixed: ClassVar[dict[str, Any]] = {"task_type": SPEAKS}
    ignored = frozenset(
        {"token_dim", "num_layers", "num_attention_heads", "num_transformer_submodules", "tokenizer_name_or_path"}
    )
    Config: ClassVar[type[Section]] = VirtualTokens

    @property
    def virtual_tokens(self) -> int:
        """How many stand before every sample."""
        return int(self.config.num_virtual_tokens)

    def prompt(self, model: Any) -> nn.Module:
        """The module whose call gives the vectors [n, width], trainable, before its first step."""
        raise NotImplementedError

    def find(self, model: Any) -> list[str]:
        """It stands on no layer."""
        return []

    def problems(self, model: Any) -> Iterator[str]:
        """A model that scores, a window without room, keys of no one shape."""
        if hasattr(model, HEAD):
            yield "the method is of models that speak, and the stage's model scores"
        limit = position_limit(model.config)
        if limit is not None and self.virtual_tokens >= limit:
            yield f"{self.virtual_tokens} virtual tokens leave no room in the model's {limit} positions"
        try:
            prompt_width(model, into_keys=self.into_keys)
        except ModelError as error:
            yield error.what

    def again(self, model: Any, prompt: SoftPrompt) -> nn.Module:
        """The same as `prompt`, to go on from one that was saved: its vectors themselves."""
        return Fixed(prompt.values.clone())

    def attach(self, model: Any) -> Any:
        """The model with virtual tokens, which alone are trained."""
        return self._over(model, self.prompt(model))

    def attach_saved(self, model: Any, prompt: SoftPrompt) -> Any:
        """The same, going on from `prompt`, which fits."""
        return self._over(model, self.again(model, prompt))

    def _over(self, model: Any, prompt: nn.Module) -> Prompted:
        weight = model.get_input_embeddings().weight
        prompt = prompt.to(weight.device, weight.dtype)
        model.requires_grad_(False)
        return Prompted(model, prompt, count=self.virtual_tokens, into_keys=self.into_keys)

    def save(self, model: Any, folder: Path) -> None:
        """A PEFT directory of the vectors as they are now."""
        prompt = prompt_of(model)
        assert prompt is not None, "what `attach` made"
        write_prompt(SoftPrompt(prompt.values, self.into_keys), self.peft_config(model, []), folder)

    def peft_config(self, model: Any, names: list[str]) -> Any:
        """PEFT's own config object, with the shapes that it would find out."""
        text = text_config(model)
        heads, width = text.num_attention_heads, prompt_width(model, into_keys=False)
        if self.into_keys:
            _, heads, size = key_shape(text)
            width = heads * size
        shapes = {"token_dim": width, "num_attention_heads": heads, "num_layers": text.num_hidden_layers}
        base = str(getattr(base_of(model), "name_or_path", "") or "")
        told = {"num_transformer_submodules": 1, "inference_mode": True, "base_model_name_or_path": base}
        config = peft_class(self.name)(**shapes, **told, **self.fixed, **self.fields(model, names))
        if getattr(config, "encoder_hidden_size", 0) is None:
            config.encoder_hidden_size = width
        for name, value in (shapes | {"num_transformer_submodules": 1}).items():
            setattr(config, name, value)  # CPT's config forgets them
        return config

    def fresh_config(self, model: Any) -> Any:
        """The same for PEFT's own modules to begin with."""
        config = self.peft_config(model, [])
        config.inference_mode = False
        return config


class Encoded(nn.Module):
    """One of PEFT's encoders, asked for all its virtual tokens."""

    def __init__(self, encoder: nn.Module, count: int) -> None:
        super().__init__()
        self.encoder, self.count = encoder, count

    def forward(self) -> torch.Tensor:
        """[n, width]."""
        device = next(self.encoder.parameters()).device
        found: torch.Tensor = self.encoder(torch.arange(self.count, device=device)[None])[0]
        return found


def tokens_of(text: str, model: Any, count: int | None = None) -> list[int]:
    """Token ids of `text` by the tokenizer beside the model's weights, over and over until they are `count`."""
    path = getattr(model, "name_or_path", "") or getattr(model.config, "name_or_path", "")
    if not path:
        raise AdapterError(
            "a model without a folder has no tokenizer", where="adapter", next_step="begin with random vectors instead"
        )
    found: list[int] = load_tokenizer(path)(text, add_special_tokens=False)["input_ids"]
    if not found:
        raise AdapterError("the text has no tokens", where="adapter", next_step="give some words")
    return found if count is None else (found * (count // len(found) + 1))[:count]


def embeddings_of(tokens: list[int], model: Any) -> torch.Tensor:
    """Their rows in the model's embedding, a copy [n, width]."""
    weight: torch.Tensor = model.get_input_embeddings().weight
    return weight.detach()[torch.tensor(tokens, device=weight.device)].clone()
