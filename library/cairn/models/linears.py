"""Where the linear layers of a model are and what each is for, read off the architecture, not off a list of names.

A linear's kind follows from the class of the module that holds it (an attention, an MLP, a router) and from the
model's own word for its head and embeddings, so a new family needs no entry here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn
from transformers.pytorch_utils import Conv1D

from cairn.errors import AdapterError, nearest
from cairn.models.unwrap import base_of

AUTO = ("attention", "mlp")
GROUPS: dict[str, tuple[str, ...]] = {
    "auto": AUTO,
    "all-linear": ("attention", "mlp", "router", "other"),
    "attention": ("attention",),
    "mlp": ("mlp",),
}
"""What a word in `adapter.targets` stands for. Embeddings and head are reached by no word: both are often one tensor,
and an adapter on it would change every other adapter's base."""
ATTENTION = re.compile(r"attn|attention", re.IGNORECASE)
MLP = re.compile(r"mlp|feedforward|feed_forward|ffn|expert|dense_h|decoderlayer|block$", re.IGNORECASE)
ROUTER = re.compile(r"router|gate$", re.IGNORECASE)
VISION = re.compile(r"vision|image|visual|audio|projector", re.IGNORECASE)


def linear_kinds(model: nn.Module) -> dict[str, str]:
    """Path → "attention" | "mlp" | "head" | "embedding" | "router" | "other" for every linear and embedding.

    Linears are `nn.Linear` (bitsandbytes' descend from it), GPT-2's `Conv1D` and those of GPTQ and AWQ; an adapted layer
    counts as the one it wraps. Paths are those of the bare model.
    """
    base = base_of(model)
    ends = {id(base.get_input_embeddings()): "embedding", id(base.get_output_embeddings()): "head"}
    modules = dict(base.named_modules())
    return {path: _kind(path, module, modules, ends) for path, module in _linears(base)}


def is_packed(module: nn.Module) -> bool:
    """Whether it is a linear of a base that was saved with GPTQ or AWQ: packed integers in `qweight`, no `weight`."""
    return hasattr(module, "qweight") and hasattr(module, "in_features") and hasattr(module, "out_features")


def linear_shapes(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Path → (in features, out features) of every linear that an adapter may stand on, head and embeddings apart."""
    kinds = linear_kinds(model)
    return {path: _features(m) for path, m in _linears(base_of(model)) if kinds[path] not in ("head", "embedding")}


def find_targets(model: nn.Module, targets: str | Sequence[str]) -> list[str]:
    """Paths of the linears that `targets` means: a word of GROUPS, or names (a path or the end of one) of linears.

    Raises AdapterError for a name that matches nothing, or that matches the head or an embedding.
    """
    kinds = linear_kinds(model)
    if isinstance(targets, str) and targets in GROUPS:
        found = [path for path, kind in kinds.items() if kind in GROUPS[targets]]
        if not found:
            raise _refusal(f"the model has no linear layer that '{targets}' stands for", "name the layers one by one")
        return found
    names = [targets] if isinstance(targets, str) else list(targets)
    return [path for path in kinds if path in {match for name in names for match in _named(name, kinds)}]


def shortest_names(model: nn.Module, paths: Sequence[str]) -> list[str]:
    """The last parts of `paths` where they name exactly these modules in PEFT's reading, else the paths."""
    ends = {path.rpartition(".")[2] for path in paths}
    named = {path for path, _ in base_of(model).named_modules() if path.rpartition(".")[2] in ends}
    return sorted(ends) if named == set(paths) else sorted(paths)


def _named(name: str, kinds: dict[str, str]) -> list[str]:
    found = [path for path in kinds if path == name or path.endswith(f".{name}")]
    if not found:
        ends = sorted({path.rpartition(".")[2] for path in kinds})
        match = nearest(name, ends)
        advice = (
            f"did you mean '{match}'?" if match else f"the model has {', '.join(ends)}; or a word: auto, all-linear"
        )
        raise _refusal(f"no linear layer is called '{name}'", advice)
    shared = [path for path in found if kinds[path] in ("head", "embedding")]
    if shared:
        raise _refusal(f"'{shared[0]}' is the model's {kinds[shared[0]]}, which adapters share", "leave it out")
    return found


def _refusal(what: str, advice: str) -> AdapterError:
    return AdapterError(what, where="adapter.targets", next_step=advice)


def _linears(base: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    inside = None
    for path, module in base.named_modules():
        if inside is not None and path.startswith(inside):
            continue
        wrapped = getattr(module, "base_layer", None)
        linear = wrapped if isinstance(wrapped, nn.Module) else module
        if isinstance(linear, nn.Linear | Conv1D | nn.Embedding) or is_packed(linear):
            inside = f"{path}."
            yield path, linear


def _kind(path: str, module: nn.Module, modules: dict[str, nn.Module], ends: dict[int, str]) -> str:
    holder = modules.get(path)
    for candidate in (module, holder):
        if id(candidate) in ends:
            return ends[id(candidate)]
    if isinstance(module, nn.Embedding):
        return "embedding"
    parent, _, name = path.rpartition(".")
    if VISION.search(path):
        return "other"
    if ROUTER.search(name) and not name.endswith("_proj") and not ATTENTION.search(type(modules[parent]).__name__):
        return "router"
    while parent:
        holder_name = f"{type(modules[parent]).__name__} {parent.rpartition('.')[2]}"
        if ATTENTION.search(holder_name):
            return "attention"
        if MLP.search(type(modules[parent]).__name__):
            return "mlp"
        parent = parent.rpartition(".")[0]
    return "other"


def _features(module: nn.Module) -> tuple[int, int]:
    if isinstance(module, Conv1D):
        rows, columns = module.weight.shape
        return int(rows), int(columns)
    linear: Any = module
    return int(linear.in_features), int(linear.out_features)
