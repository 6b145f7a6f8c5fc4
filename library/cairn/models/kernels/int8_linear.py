"""An 8-bit linear that computes with its dequantised weight, whatever it is asked for.

bitsandbytes' own layer also quantises the activations, except in training on a CPU: there its answers in training and in
evaluation differ, an adapter is trained against another base than it is measured on, and outliers of one row change the
columns that are split off for its neighbours. Here 8 bits are a way to keep weights: W = int8 · scale of its row / 127
(Dettmers et al. 2022, arXiv 2208.07339, section 2.1), formed anew in each pass and rounded once to the dtype of the
product. Nothing is kept for the backward pass. Cost: one dequantised weight at a time.
"""

from __future__ import annotations

from typing import Any

import torch
from bitsandbytes.nn import Linear8bitLt
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

LARGEST = 127.0


class Int8Linear(Linear8bitLt):
    """Made by `use_int8_linears`, which changes the class of a loaded layer in place."""

    compute: torch.dtype | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in] → [..., out] in the dtype of `x`; the product is computed in `compute`, where set."""
        result: torch.Tensor = _Product.apply(x.to(self.compute or x.dtype), self)
        return result.to(x.dtype)

    def scales(self) -> torch.Tensor:
        """The largest absolute weight of each row, fp32 [out]; bitsandbytes moves it about."""
        weight: Any = self.weight
        found: torch.Tensor = self.state.SCB if self.state.SCB is not None else weight.SCB
        return found

    def dequantized(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """[out, in] in `dtype`."""
        return (self.weight.data * (self.scales() / LARGEST)[:, None]).to(dtype)


class _Product(torch.autograd.Function):
    """The gradient reaches the rows alone."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: Int8Linear) -> torch.Tensor:
        ctx.layer = layer
        bias = layer.bias.to(x.dtype) if layer.bias is not None else None
        return F.linear(x, layer.dequantized(x.dtype), bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient @ ctx.layer.dequantized(gradient.dtype), None


def use_int8_linears(model: torch.nn.Module, *, compute: torch.dtype | None) -> None:
    """Turn every 8-bit linear of `model` into an Int8Linear, in place."""
    for module in model.modules():
        if type(module) is Linear8bitLt:
            module.__class__ = Int8Linear
            module.__dict__["compute"] = compute
