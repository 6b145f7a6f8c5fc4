"""BOFT (Liu et al. 2023, arXiv 2311.06243): W is rotated by a product of sparse orthogonal matrices, arranged like the
butterflies of a fast Fourier transform. Slow: every step inverts a matrix for each block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from pydantic import Field

from cairn.adapters.linear_change import LinearChange, diagonal_blocks
from cairn.adapters.method import Capabilities
from cairn.adapters.peft_method import OnLinears, PeftMethod, undivided


class Boft(PeftMethod):
    """Rotations in butterfly order."""

    can = Capabilities(quantised=True)

    class Config(OnLinears):
        """Size and place."""

        block_size: int = Field(
            4,
            serialization_alias="boft_block_size",
            gt=1,
            le=256,
            description="size of a rotated block; divides the inputs of every layer",
        )
        butterfly_factors: int = Field(
            1,
            serialization_alias="boft_n_butterfly_factor",
            ge=1,
            le=8,
            description="rotations in a row; 1: block-diagonal only",
        )
        dropout: float = Field(
            0.0, serialization_alias="boft_dropout", ge=0, lt=1, description="dropout before the update"
        )

    def misfits(self, shapes: Mapping[str, tuple[int, int]]) -> Iterator[str]:
        """Blocks that do not divide a layer's inputs, and butterflies that PEFT would leave out without a word."""
        if self.config.butterfly_factors > 1 and not torch.cuda.is_available():
            yield "adapter.butterfly_factors above 1 needs PEFT's CUDA extension: without it PEFT takes 1"
        yield from undivided(shapes, self.config.block_size, "adapter.block_size")

    def change_of(self, layer: Any) -> LinearChange:
        """The inputs are turned and the outputs scaled, without the bias; several butterflies are one block."""
        turn, scale = layer.get_delta_weight("default")
        size = self.config.block_size if self.config.butterfly_factors == 1 else turn.shape[0]
        scale, bias = scale.flatten(), layer.get_base_layer().bias
        kept = None if bias is None else (1 - scale) * bias
        return LinearChange(turn=diagonal_blocks(turn, size), scale=scale, bias=kept)
