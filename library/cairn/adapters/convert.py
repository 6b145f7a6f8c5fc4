"""Any adapter that merges, as a plain LoRA: the change of each linear's weight, cut to a rank by its singular values.

Multiplicative methods (OFT, IA³, HRA …) change a weight by a matrix of full rank, of which a LoRA keeps the largest part;
the relative error is returned, so that nobody is surprised. Cost: a copy of the model in fp64
and one SVD a layer.
"""

from __future__ import annotations

import copy
import re
from typing import Any

import torch
from transformers.pytorch_utils import Conv1D

from cairn.adapters.compress import Pruned
from cairn.adapters.factors import Deviation
from cairn.adapters.files import MAX_RANK, is_transposed
from cairn.adapters.plain import plain_lora
from cairn.errors import AdapterError
from cairn.models.linears import linear_kinds, linear_shapes
from cairn.models.unwrap import base_of

WRAPPED = re.compile(r"\.(base_layer|original_module|token_adapter)(?=\.)")
"""What PEFT puts between a module and its path."""
NOTHING = 1e-12
"""A change of a weight below this share of its norm is none."""


@torch.no_grad()
def to_lora(adapted: Any, *, rank: int | None = None) -> Pruned:
    """The LoRA of `rank` (None: as much as it takes, at most MAX_RANK) nearest to the adapter of a PEFT model, with its relative error
    ‖ΔW − scaling·B·A‖ / ‖ΔW‖ (Frobenius; Eckart and Young 1936).

    Raises AdapterError for an adapter that changes anything but linears, or nothing at all.
    """
    deltas = _changes(adapted)
    if not deltas:
        raise AdapterError("the adapter changes no linear layer", next_step="train it, or keep it as it is")
    layers, lost, whole = {}, {}, {}
    for path, delta in deltas.items():
        u, s, v = torch.linalg.svd(delta, full_matrices=False)
        kept = min(rank or _needed(s), len(s), MAX_RANK)
        root = s[:kept].sqrt()
        layers[path] = ((root[:, None] * v[:kept]).float(), (u[:, :kept] * root).float())
        lost[path], whole[path] = float(s[kept:].square().sum()), float(s.square().sum())
    total = (sum(lost.values()) / sum(whole.values())) ** 0.5
    error = Deviation(total, {path: (lost[path] / whole[path]) ** 0.5 for path in layers})
    return Pruned(plain_lora(layers, transposed=is_transposed(adapted, list(layers))), error)


def _needed(singular: torch.Tensor) -> int:
    """Singular values above fp32's rounding of the largest."""
    return max(1, int((singular > singular[0] * 1e-6).sum()))


def _changes(adapted: Any) -> dict[str, torch.Tensor]:
    """Path → ΔW [out, in] of every linear that merging changes; AdapterError where it changes something else."""
    exact = copy.deepcopy(adapted).double()  # a small change of a large weight would drown in fp32's rounding
    before = {name: value.clone() for name, value in _plain_weights(exact).items()}
    try:
        merged = exact.merge_and_unload()
    except NotImplementedError as error:
        raise AdapterError(f"the adapter is no change of weights: {error}", next_step="keep it as it is") from error
    kinds, found = linear_kinds(merged), {}
    shapes = linear_shapes(merged)
    for name, value in merged.state_dict().items():
        if name not in before:
            raise AdapterError(f"the adapter adds {name}, which a LoRA cannot", next_step="keep it as it is")
        if torch.equal(value, before[name]):
            continue
        path = name.removesuffix(".weight")
        delta = value - before[name]
        if float(delta.norm()) <= NOTHING * float(before[name].norm()):
            continue
        if path not in shapes or path == name:
            raise AdapterError(
                f"the adapter changes {name}{f' ({kinds[path]})' if path in kinds else ''}, which a LoRA cannot",
                next_step="keep it as it is",
            )
        found[path] = delta.T if isinstance(merged.get_submodule(path), Conv1D) else delta
    return found


def _plain_weights(adapted: Any) -> dict[str, torch.Tensor]:
    """The base's own tensors by their names in the bare model."""
    state = base_of(adapted).state_dict()
    return {WRAPPED.sub("", name): value for name, value in state.items() if torch.is_tensor(value)}
