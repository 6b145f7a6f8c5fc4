"""Rows as tensors, padded to the longest row of the batch. Padding is segment 0 and weighs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from cairn.data.rows import Row


@dataclass(frozen=True)
class Batch:
    """All [rows, length]: `tokens`, `labels`, `segments`, `positions` int64, `weights` float32."""

    tokens: torch.Tensor
    labels: torch.Tensor
    weights: torch.Tensor
    segments: torch.Tensor
    positions: torch.Tensor
    sources: tuple[tuple[str, ...], ...]

    def to(self, device: Any) -> Batch:
        """The batch on `device`."""
        return Batch(
            tokens=self.tokens.to(device),
            labels=self.labels.to(device),
            weights=self.weights.to(device),
            segments=self.segments.to(device),
            positions=self.positions.to(device),
            sources=self.sources,
        )


def collate(rows: Sequence[Row], *, pad_token: int) -> Batch:
    """Rows to a Batch; padded positions go on counting from 0 so that no position exceeds a model's limit."""
    length = max(len(row) for row in rows)

    def stack(name: str, fill: float, dtype: Any) -> torch.Tensor:
        out = np.full((len(rows), length), fill, dtype=dtype)
        for i, row in enumerate(rows):
            out[i, : len(row)] = getattr(row, name)
        return torch.from_numpy(out)

    return Batch(
        tokens=stack("tokens", pad_token, np.int64),
        labels=stack("labels", pad_token, np.int64),
        weights=stack("weights", 0.0, np.float32),
        segments=stack("segments", 0, np.int64),
        positions=stack("positions", 0, np.int64),
        sources=tuple(row.sources for row in rows),
    )
