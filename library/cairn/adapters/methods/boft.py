"""BOFT (Liu et al. 2023, arXiv 2311.06243): W is rotated by a product of sparse orthogonal matrices, arranged like the
butterflies of a fast Fourier transform. Slow: every step inverts a matrix for each block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from pydantic import Field

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
