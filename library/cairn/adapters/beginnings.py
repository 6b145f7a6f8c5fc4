"""Where the A and B of a LoRA begin, when not at zero, so that training starts in directions that matter.

    eva       A: the directions in which a layer's inputs vary most; ranks go where they explain most
    corda     A and B: the part of W that counts most for such inputs; with corda_kpm the least for those of documents
    lora_ga   A and B: the leading directions of the gradient of W
    loftq     A and B: what quantisation took away from W
    mica      B: the directions that W reaches least, and stays so

PEFT's own functions are not used: its CorDA takes padding for data and one row for all, its LoRA-GA scales B by the
singular values and A not at all, against the paper, and its LoftQ forgets the strength. Cost: one decomposition a layer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn
from transformers.pytorch_utils import Conv1D

from cairn.adapters.files import KEY, WEIGHTS_FILE
from cairn.adapters.preview import Moments, Preview, input_moments, weight_gradients
from cairn.errors import AdapterError
from cairn.models.linears import shortest_names
from cairn.models.load import load_model
from cairn.models.quantization import dequantised_weight, quantised_linears
from cairn.models.unwrap import base_of

Factors = tuple[torch.Tensor, torch.Tensor]
"""A [rank, in] and B [out, rank]."""
GAMMA = 16.0
"""LoRA-GA, section 4: how small the beginning is."""
DAMPING = 0.01
"""CorDA, section 3.2: of the mean of the diagonal, added to it before it is inverted."""
ITERATIONS, OVERSAMPLING = 4, 4


def weight_of(layer: Any) -> torch.Tensor:
    """fp32 [out, in], whatever way round the layer keeps it."""
    return _as_rows(layer, layer.weight.detach().float())


def _as_rows(layer: Any, weight: torch.Tensor) -> torch.Tensor:
    return weight.t() if isinstance(layer, Conv1D) else weight


def eva(moments: Mapping[str, Moments], outputs: Mapping[str, int], *, rank: int, rho: float) -> dict[str, Factors]:
    """Paischer et al. 2024, arXiv 2410.07170: A the leading eigenvectors of the inputs' covariance, B zero.

    `rank` a layer on average, at most rho · rank: components go to the layers where they explain the largest share of the
    variance. A layer that gets none is left out.
    """
    spectra: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    for shared in moments.values():
        if id(shared) not in spectra:
            values, vectors = torch.linalg.eigh(shared.covariance())
            shares = values.flip(0).clamp_min(0) / values.clamp_min(0).sum()
            spectra[id(shared)] = shares, vectors.flip(1).t().float()
    most = {path: min(round(rho * rank), len(m.total), outputs[path], m.count - 1) for path, m in moments.items()}
    owners = [path for path in moments for _ in range(most[path])]
    shares = torch.cat([spectra[id(m)][0][: most[path]] for path, m in moments.items()])
    ranks = dict.fromkeys(moments, 0)
    for index in torch.argsort(shares, descending=True, stable=True)[: rank * len(moments)].tolist():
        ranks[owners[index]] += 1
    made = {path: spectra[id(moments[path])][1][:count] for path, count in ranks.items() if count}
    return {path: (a, a.new_zeros(outputs[path], len(a))) for path, a in made.items()}


def corda(weight: torch.Tensor, moments: Moments, *, rank: int, scaling: float, keeps: bool = False) -> Factors:
    """Yang et al. 2024, arXiv 2406.05223: of W·C = U·S·Vᵀ, with C the mean of x·xᵀ, the leading part U·S·Vᵀ·C⁻¹ of W,
    shared out between A and B: what counts most for x (instruction-previewed). `keeps`: the last part, so that what
    counts for x stays (knowledge-preserved)."""
    second = moments.second()
    second.diagonal().add_(DAMPING * second.diagonal().mean())
    u, s, vh = torch.linalg.svd(weight.double() @ second, full_matrices=False)
    part = slice(-rank, None) if keeps else slice(rank)
    root = (s[part] / scaling).sqrt()
    right = torch.linalg.solve(second, vh[part].t()).t()
    return (root[:, None] * right).float(), (u[:, part] * root).float()


def lora_ga(gradient: torch.Tensor, path: str, *, rank: int) -> Factors:
    """Wang et al. 2024, arXiv 2407.05000, equation 10: with the gradient U·S·Vᵀ, A the first `rank` rows of Vᵀ and B the
    next columns of U, both times ⁴√out / √γ; the first change of A·B then lies closest to that of W."""
    if not gradient.any():
        raise AdapterError(
            f"the loss of the first rows has no gradient at {path}",
            where="adapter.init=lora_ga",
            next_step="leave that layer out of adapter.targets, or choose another beginning",
        )
    with torch.random.fork_rng(devices=[gradient.device] if gradient.is_cuda else []):
        torch.manual_seed(0)
        wide = min(OVERSAMPLING * rank, *gradient.shape)
        u, _, v = torch.svd_lowrank(gradient, q=wide, niter=ITERATIONS)
    size = gradient.shape[0] ** 0.25 / math.sqrt(GAMMA)
    return size * v[:, :rank].t(), size * u[:, rank : 2 * rank]


def loftq(weight: torch.Tensor, quantised: torch.Tensor, *, rank: int, scaling: float) -> Factors:
    """Li et al. 2023, arXiv 2310.08659, algorithm 1 with one iteration, so that the base stays the one that others use:
    scaling · B·A is the best approximation of W − its quantised self."""
    u, s, vh = torch.linalg.svd(weight - quantised, full_matrices=False)
    root = (s[:rank] / scaling).sqrt()
    return root[:, None] * vh[:rank], u[:, :rank] * root


def mica(weight: torch.Tensor, *, rank: int) -> Factors:
    """Minor components (arXiv 2604.01694): B the last left singular vectors of W, A zero."""
    u, _, _ = torch.linalg.svd(weight, full_matrices=False)
    return weight.new_zeros(rank, weight.shape[1]), u[:, -rank:]


def lost_weights(model: Any, paths: list[str]) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Path → (W, its quantised self), fp32 [out, in]; loads the unquantised base once more. AdapterError without one."""
    layers = quantised_linears(model)
    missing = sorted(set(paths) - layers.keys())
    if missing:
        raise AdapterError(
            f"{missing[0]} is not quantised by bitsandbytes, so nothing of it was lost",
            where="adapter.init=loftq",
            next_step="set model.quantization=nf4, or another beginning",
        )
    config = base_of(model).config
    remote = getattr(config, "auto_map", None) is not None  # its code runs already, or there were no model
    whole = load_model(config._name_or_path, precision="fp32", trust_remote_code=remote)
    return {path: (weight_of(whole.get_submodule(path)), dequantised_weight(layers[path])) for path in paths}


def beginning_of(
    init: str, model: Any, paths: list[str], preview: Preview | None, *, rank: int, scaling: float, rho: float
) -> dict[str, Factors]:
    """Path → A and B as `init` begins them, fp32; scaling: what B·A is multiplied with; preview: for those that look."""
    linears = {path: base_of(model).get_submodule(path) for path in paths}
    if init == "loftq":
        lost = lost_weights(model, paths)
        return {path: loftq(*pair, rank=rank, scaling=scaling) for path, pair in lost.items()}
    if init == "mica":
        return {path: mica(weight_of(linear), rank=rank) for path, linear in linears.items()}
    assert preview is not None, init
    if init == "lora_ga":
        gradients = weight_gradients(model, paths, preview)
        return {path: lora_ga(_as_rows(linears[path], g), path, rank=rank) for path, g in gradients.items()}
    moments = input_moments(model, paths, preview, trained=init == "eva")
    if init == "eva":
        return eva(moments, {path: len(weight_of(linear)) for path, linear in linears.items()}, rank=rank, rho=rho)
    keeps = init == "corda_kpm"
    return {
        path: corda(weight_of(linears[path]), m, rank=rank, scaling=scaling, keeps=keeps) for path, m in moments.items()
    }


def read_beginning(folder: Path, *, converted: bool) -> dict[str, Factors]:
    """Path → A and B out of an adapter that a checkpoint of this run holds: the beginning itself where it was `converted`
    on saving (`cairn.adapters.files.subtract_beginning`), else as trained so far."""
    parts: dict[str, dict[str, torch.Tensor]] = {}
    for key, tensor in load_file(folder / WEIGHTS_FILE).items():
        if match := KEY.fullmatch(key):
            parts.setdefault(match["path"], {})[match["part"]] = tensor
    if not converted:
        return {path: (part["A"], part["B"]) for path, part in parts.items()}
    half = {path: len(part["A"]) // 2 for path, part in parts.items()}
    return {path: (part["A"][half[path] :], -part["B"][:, half[path] :]) for path, part in parts.items()}


def begun(method: Any, model: Any, factors: Mapping[str, Factors]) -> Any:
    """A PEFT model of the method `lora` that begins with `factors`, each layer at the strength that the recipe gives its
    rank."""
    config = method.config
    rank, alpha = config.rank, config.alpha or 2 * config.rank
    ranks = {f"^{re.escape(path)}": len(a) for path, (a, _) in factors.items() if len(a) != rank}
    root = 0.5 if config.use_rslora else 1
    alphas = {key: alpha * (count / rank) ** root for key, count in ranks.items()}
    changes = {"init": "zero", "rank_pattern": ranks, "alpha_pattern": alphas}
    plain = type(method)(config.model_copy(update=changes))
    adapted = plain.inject(model, shortest_names(model, list(factors)))
    _place(adapted, factors, taken_out=method.changes_base)
    if config.init == "mica":
        freeze(adapted, ".lora_B.")
    if method.changes_base:
        adapted.beginning = copies(adapted)
    return adapted


def freeze(adapted: Any, part: str) -> None:
    """Train no parameter that has `part` in its name."""
    for name, parameter in adapted.named_parameters():
        if part in name:
            parameter.requires_grad = False


def copies(adapted: Any) -> dict[str, torch.Tensor]:
    """Every A and B by its parameter's name."""
    parts = {name: p for name, p in adapted.named_parameters() if ".lora_A." in name or ".lora_B." in name}
    return {name: parameter.detach().clone() for name, parameter in parts.items()}


@torch.no_grad()
def _place(model: Any, factors: Mapping[str, Factors], *, taken_out: bool) -> None:
    """Put A and B into the adapters of a PEFT model, in its dtype; with `taken_out` W becomes W − scaling · B·A."""
    base = base_of(model)
    for path, (a, b) in factors.items():
        layer: Any = base.get_submodule(path)
        down, up = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        down.copy_(a)
        up.copy_(b)
        if taken_out:
            linear: nn.Module = layer.get_base_layer()
            update = layer.scaling["default"] * (up.float() @ down.float())
            changed = linear.weight.float() - (update.t() if isinstance(linear, Conv1D) else update)
            linear.weight.data = changed.to(linear.weight.dtype)
