"""One linear for frozen weights: oneDNN with the weight reordered once, for scoring, generation and a frozen base.

`F.linear` reorders its weight in every call; here that is done once and again whenever the weight changes. Whether it
pays depends on the CPU, the shape and the number of rows, so it is measured (`measure.py`), and where it does not pay,
as on every GPU, the layer is the plain one. A CPU without bf16 products takes the rows and the weight up to fp32.
Results equal the plain layer's to 2e-7 relative in fp32.

Cost: a second copy of every frozen weight (fp32 where the CPU has no bf16), a third for training.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from cairn.models.kernels.measure import FEW_ROWS, Pays, measure_pays, packed_dtype, product, reorder


class FrozenLinear(nn.Linear):
    """An `nn.Linear` whose weight and bias take no gradient; `state_dict`, copies and pickles are the plain layer's.

    Made by `use_frozen_linears`, which changes the class of a layer in place and so keeps parameters, ties and hooks.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """[..., in] → [..., out], in the dtype of `input`."""
        if not self._applies(input):
            return F.linear(input, self._parameters["weight"], self._parameters["bias"])  # type: ignore[arg-type]
        if torch.is_grad_enabled() and input.requires_grad:
            result: torch.Tensor = _Packed.apply(input, self)
            return result
        return self._product(input)

    def __getattr__(self, name: str) -> Any:
        """Whoever takes the weight from outside may write through `.data`, which no version counts: pack again."""
        if name == "weight":
            self.__dict__["_packed"] = {}
        return super().__getattr__(name)

    def __getstate__(self) -> dict[str, Any]:
        """Without the packed copies, which cannot be pickled and are made again at the first call."""
        return {**self.__dict__, "_packed": {}}

    def _applies(self, x: torch.Tensor) -> bool:
        weight: Any = self._parameters["weight"]
        if weight.requires_grad or x.dtype != weight.dtype or x.device.type != "cpu" or weight.device.type != "cpu":
            return False
        if weight.is_inference() or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
            return False
        pays: Pays = self.__dict__["_pays"]
        needs_gradient = torch.is_grad_enabled() and x.requires_grad
        if needs_gradient and not (pays.training and self.__dict__["_training"]):
            return False
        return pays.few_rows if x.numel() <= FEW_ROWS * x.shape[-1] else pays.many_rows

    def _product(self, x: torch.Tensor) -> torch.Tensor:
        return product(x, self._pack(transposed=False), self._parameters["bias"])

    def _input_gradient(self, gradient: torch.Tensor) -> torch.Tensor:
        return product(gradient.contiguous(), self._pack(transposed=True), None)

    def _pack(self, *, transposed: bool) -> torch.Tensor:
        weight: Any = self._parameters["weight"]
        state = (weight._version, weight.data_ptr(), weight.dtype)
        packed: dict[Any, Any] = self.__dict__["_packed"]
        if packed.get("state") != state:
            # The alias keeps the old storage alive, so that its address cannot come back for other numbers.
            packed = self.__dict__["_packed"] = {"state": state, "alias": weight.detach()}
        if transposed not in packed:
            source = weight.detach().t().contiguous() if transposed else weight.detach()
            packed[transposed] = reorder(source)
        found: torch.Tensor = packed[transposed]
        return found


class _Packed(torch.autograd.Function):
    """The product with its gradient with respect to the rows; weight and bias are frozen and get none."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: FrozenLinear) -> torch.Tensor:
        ctx.layer = layer
        return layer._product(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.layer._input_gradient(gradient), None


def use_frozen_linears(model: nn.Module, *, training: bool) -> int:
    """Turn every frozen `nn.Linear` of `model` for which it pays into a FrozenLinear, in place; returns how many.

    Call it after adapters are attached and parameters frozen; the linears that PEFT wraps are reached too.
    training: also keep the transposed weights, for the gradient with respect to the input. A layer that a gradient
    is asked of later, and one that ZeRO 3 has taken apart, works as the plain layer.
    """
    changed = 0
    for module in model.modules():
        if type(module) is not nn.Linear or not _is_frozen(module):
            continue
        pays = measure_pays(module.in_features, module.out_features, module.weight.dtype, training=training)
        if pays.few_rows or pays.many_rows:
            module.__class__ = FrozenLinear
            module.__dict__.update(_packed={}, _pays=pays, _training=training)
            changed += 1
    return changed


def _is_frozen(module: nn.Linear) -> bool:
    parameters = [module.weight] + ([module.bias] if module.bias is not None else [])
    return packed_dtype(module.weight) is not None and not any(
        parameter.requires_grad or hasattr(parameter, "ds_id") for parameter in parameters
    )
