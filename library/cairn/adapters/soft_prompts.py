"""Trained virtual tokens as data: read out of a PEFT directory, laid over a model, and told in words of its vocabulary.

Whatever made them (a table, a network, a projection of real tokens), what is saved is one tensor `prompt_embeddings`:
the embeddings [n, width] of n virtual tokens, or their keys and values [n, layers · 2 · heads · size].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cairn.adapters.files import WEIGHTS_FILE
from cairn.errors import AdapterError, ModelError
from cairn.models.save import share_weights
from cairn.models.unwrap import base_of, prompted, text_config
from cairn.models.virtual_tokens import Fixed, Prompted, key_shape

KEY = "prompt_embeddings"
MOST_VIRTUAL_TOKENS = 4096


@dataclass(frozen=True)
class SoftPrompt:
    """`values` fp32, fp16 or bf16 [n, …], as PEFT saves them; `into_keys`: they are keys and values, not embeddings."""

    values: torch.Tensor
    into_keys: bool = False

    def __len__(self) -> int:
        return len(self.values)

    def over(self, model: Any) -> Prompted:
        """`model` with these virtual tokens, frozen. AdapterError where they do not fit."""
        wrong = self.misfit(model)
        if wrong:
            raise AdapterError(
                f"the soft prompt does not fit the model: {wrong}",
                next_step="attach it to the base model that it was trained on",
            )
        weight = model.get_input_embeddings().weight
        values = self.values.to(weight.device, weight.dtype, copy=True)
        return Prompted(model, Fixed(values).requires_grad_(False), count=len(self), into_keys=self.into_keys)

    def misfit(self, model: Any) -> str:
        """What keeps it off `model`; empty when it fits."""
        try:
            wanted = prompt_width(model, into_keys=self.into_keys)
        except ModelError as error:
            return error.what
        found = self.values.shape[-1]
        what = "numbers of keys and values" if self.into_keys else "dimensions"
        return "" if found == wanted else f"a virtual token has {found} {what}, this model needs {wanted}"


def prompt_width(model: Any, *, into_keys: bool) -> int:
    """Numbers of one virtual token. ModelError where the model's keys have no one shape."""
    if not into_keys:
        return int(base_of(model).get_input_embeddings().weight.shape[1])
    layers, heads, size = key_shape(text_config(model))
    return layers * 2 * heads * size


def prompt_of(model: Any) -> SoftPrompt | None:
    """The virtual tokens that a model, or its engine, has now; None for a model without."""
    found = prompted(model)
    if found is None:
        return None
    training = found.prompt.training
    found.prompt.eval()
    try:
        with torch.no_grad():
            return SoftPrompt(found.prompt().detach(), found.into_keys)
    finally:
        found.prompt.train(training)


def write_prompt(prompt: SoftPrompt, config: Any, folder: str | Path) -> None:
    """A PEFT directory of `prompt`; `config` is PEFT's own object."""
    from safetensors.torch import save_file

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(str(folder))
    save_file({KEY: prompt.values.cpu().contiguous()}, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    share_weights(folder)


def nearest_tokens(
    prompt: SoftPrompt, embeddings: torch.Tensor, *, count: int = 3
) -> Iterator[list[tuple[int, float]]]:
    """(token id, cosine) of the `count` nearest rows of `embeddings` [vocabulary, width], virtual token by virtual token.

    AdapterError for keys and values, which lie in no space of tokens.
    """
    if prompt.into_keys:
        raise AdapterError(
            "keys and values have no nearest tokens", next_step="train prompt_tuning to have embeddings to compare"
        )
    rows = torch.nn.functional.normalize(embeddings.float(), dim=1)
    cosines = torch.nn.functional.normalize(prompt.values.float(), dim=1) @ rows.T
    best = cosines.topk(min(count, len(rows)), dim=1)
    for tokens, values in zip(best.indices.tolist(), best.values.tolist(), strict=True):
        yield list(zip(tokens, values, strict=True))
