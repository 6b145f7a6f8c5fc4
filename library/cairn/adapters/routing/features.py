"""What a prompt looks like to the base model: the mean of its last hidden states, of length 1.

The mean is over the prompt's own tokens, the last `MOST_TOKENS` of a longer one. Prompts of like length share a forward
pass; padding stands behind a prompt, where a causal model's tokens do not see it, and never counts, so the batch changes
a feature by rounding only. Cost: one forward pass over the tokens, without the head.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from cairn.errors import UserError
from cairn.models.attention import forward_inputs
from cairn.models.unwrap import base_of

MOST_TOKENS = 512
BATCH_TOKENS = 2048


@torch.no_grad()
def prompt_features(model: Any, prompts: Sequence[Sequence[int]], *, batch_tokens: int = BATCH_TOKENS) -> torch.Tensor:
    """fp32 [prompts, width] on the CPU, rows of length 1, in the order of `prompts` (token ids).

    model: the base, bare or with no adapter active, in evaluation mode. UserError for a prompt without tokens.
    """
    inner = base_of(model).base_model
    device = next(inner.parameters()).device
    kept = [prompt[-MOST_TOKENS:] for prompt in prompts]
    if not all(kept):
        raise UserError("a prompt without tokens is like nothing", next_step="give at least one token")
    found: dict[int, torch.Tensor] = {}
    for places in _batches([len(prompt) for prompt in kept], batch_tokens):
        means = _means(inner, [kept[place] for place in places], model, device)
        found |= dict(zip(places, means.cpu(), strict=True))
    stacked = torch.stack([found[place] for place in range(len(kept))])
    return torch.nn.functional.normalize(stacked, dim=-1)


def _means(inner: Any, prompts: Sequence[Sequence[int]], model: Any, device: Any) -> torch.Tensor:
    """fp32 [prompts, width]."""
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    width = int(lengths.max())
    tokens = torch.tensor([[*prompt, *[0] * (width - len(prompt))] for prompt in prompts], device=device)
    columns = torch.arange(width).expand(len(prompts), width)
    real = (columns < lengths[:, None]).to(device)
    inputs = forward_inputs(tokens, real.long(), columns.to(device), model)
    hidden = inner(**inputs).last_hidden_state.float()
    return (hidden * real[..., None]).sum(1) / lengths.to(device)[:, None]


def _batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Places in batches of at most `batch_tokens` tokens with padding (but one prompt at least), longest first."""
    order = sorted(range(len(lengths)), key=lambda place: (-lengths[place], place))
    while order:
        size = max(1, batch_tokens // lengths[order[0]])
        yield order[:size]
        order = order[size:]
