"""HRA (Yuan et al. 2024, arXiv 2405.17484): W is multiplied by a chain of Householder reflections, which begin in pairs
that undo each other."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field

from cairn.adapters.linear_change import LinearChange
from cairn.adapters.peft_method import OnLinears, PeftMethod


class Hra(PeftMethod):
    """Reflections."""

    class Config(OnLinears):
        """Size and place."""

        rank: int = Field(8, serialization_alias="r", gt=0, le=256, multiple_of=2, description="reflections in a row")
        orthogonal: bool = Field(
            False, serialization_alias="apply_GS", description="keep their directions orthogonal (Gram-Schmidt)"
        )

    def change_of(self, layer: Any) -> LinearChange:
        """A LoRA: the reflections together are I + U·C·Uᵀ (Bischof and Van Loan 1987), of which W·U·C is B and Uᵀ is A."""
        directions = layer.hra_u["default"]
        if self.config.orthogonal:
            u = torch.linalg.qr(directions)[0]
            c = -2 * torch.eye(u.shape[1], dtype=u.dtype)
        else:
            u = directions / directions.norm(dim=0)
            c, products, one = torch.zeros_like(u.T @ u), u.T @ u, torch.eye(u.shape[1], dtype=u.dtype)
            for i in range(u.shape[1]):
                c[:, i] = -2 * (one[i] + c @ products[:, i])
        return LinearChange(down=u.T, up=layer.get_base_layer().weight @ u @ c)
