"""Noise on the embeddings while a model is fine-tuned, NEFTune (Jain et al. 2023, arXiv 2310.05914).

Every embedding gets uniform noise of ±alpha / √(L·d), L the tokens of its sample and d the width, so that a sample's
noise has the same length whatever its size. Draws from torch's generator, which the loop seeds by step and rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from cairn.models.unwrap import base_of


@contextmanager
def noisy_embeddings(model: Any, segments: torch.Tensor, *, alpha: float) -> Iterator[None]:
    """Inside the block `model` sees noisy embeddings, when it is training; alpha = 0 leaves it as it is.

    segments: int64 [rows, length], the samples of each row, 0 where there is padding, which gets no noise.
    """
    embeddings = base_of(model).get_input_embeddings()
    if not (alpha and embeddings.training):
        yield
        return
    lengths = _lengths(segments)

    def add(module: Any, given: Any, output: torch.Tensor) -> torch.Tensor:
        size = torch.where(lengths > 0, alpha / (lengths * output.shape[-1]).sqrt(), 0.0).reshape(output.shape[:2])
        noise = torch.empty_like(output, dtype=torch.float32).uniform_(-1, 1) * size[..., None]
        return output + noise.to(output.dtype)

    handle = embeddings.register_forward_hook(add)
    try:
        yield
    finally:
        handle.remove()


def _lengths(segments: torch.Tensor) -> torch.Tensor:
    """For each position how many its sample has, float32 [rows, length]; 0 in padding."""
    counts = torch.zeros(len(segments), int(segments.max()) + 1, device=segments.device)
    counts.scatter_add_(1, segments, torch.ones_like(segments, dtype=torch.float32))
    counts[:, 0] = 0
    return counts.gather(1, segments)
