"""The engine's state on disk: tensors by parameter name, so that it loads at any number of workers and any ZeRO stage.

    optimizer.safetensors   KEY/PARAMETER, where KEY is the fp32 master or a per-element state of the optimizer
    optimizer.json          the keys, and the values that all parameters share (the step count)

Cost: 12 bytes a trained parameter of Adam pass through the first worker.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from cairn.errors import CairnError

STATE_FILE, SCALARS_FILE = "optimizer.safetensors", "optimizer.json"
Trained = Mapping[str, torch.nn.Parameter]


def keys_of(optimizer: torch.optim.Optimizer) -> tuple[list[str], dict[str, float]]:
    """Names of the per-element states, and the values that all parameters share."""
    state: dict[str, Any] = next(iter(optimizer.state.values()), {})
    tensors = sorted(key for key, value in state.items() if torch.is_tensor(value) and value.dim() > 0)
    return tensors, {key: float(value) for key, value in state.items() if key not in tensors}


def link(zero: Any) -> None:
    """ZeRO 1 and 2 link states to parameters when the first group has stepped, and so miss those of the others."""
    if getattr(zero, "_hp_optimizer_states_linked", False):
        zero._hp_optimizer_states_linked = False
        zero._lazy_init_hp_params_optimizer_state()


def make(optimizer: torch.optim.Optimizer, zero: Any, tensors: Sequence[str], scalars: Mapping[str, float]) -> None:
    """The optimizer state as its first step would make it, so that there is something to fill; `zero` wraps it."""
    flat = getattr(zero, "fp32_partitioned_groups_flat", None)
    targets = flat or [p for group in optimizer.param_groups for p in group["params"]]
    counts_in_tensors = isinstance(optimizer, torch.optim.Adam)
    for target in targets if tensors else ():
        made: dict[str, Any] = {key: torch.zeros_like(target) for key in tensors}
        for key, value in scalars.items():
            made[key] = torch.tensor(value, dtype=torch.float32) if counts_in_tensors else int(value)
        optimizer.state[target] = made
    if tensors and hasattr(zero, "_lazy_init_hp_params_optimizer_state"):
        zero._lazy_init_hp_params_optimizer_state()


def write(
    folder: Path,
    trained: Trained,
    keys: Sequence[str],
    scalars: Mapping[str, float],
    *,
    get: Callable[[torch.nn.Parameter, str], torch.Tensor],
) -> None:
    """Gather every key of every parameter and write them from the first worker; every worker calls it."""
    from safetensors.torch import save_file

    gathered = {}
    for name, parameter in trained.items():
        for key in keys:
            value = get(parameter, key)
            if dist.get_rank() == 0:
                gathered[f"{key}/{name}"] = value.detach().to("cpu", copy=True).contiguous()
    if dist.get_rank() == 0:
        save_file(gathered, folder / STATE_FILE)
        (folder / SCALARS_FILE).write_text(json.dumps({"tensors": list(keys), "scalars": dict(scalars)}))


def described(folder: Path) -> tuple[list[str], dict[str, float]]:
    """The keys and the shared values of what `write` left in `folder`."""
    found = json.loads((folder / SCALARS_FILE).read_text())
    return found["tensors"], found["scalars"]


def read(
    folder: Path,
    trained: Trained,
    keys: Sequence[str],
    *,
    put: Callable[[torch.nn.Parameter, str, torch.Tensor], None],
    device: torch.device,
) -> None:
    """Put every key of every parameter in its place; CairnError where other parameters were trained."""
    from safetensors import safe_open

    with safe_open(folder / STATE_FILE, framework="pt") as file:
        stored = {key.partition("/")[2] for key in file.keys()}  # noqa: SIM118 - not a dict
        if stored != set(trained):
            raise CairnError(
                f"the checkpoint trains other parameters: {sorted(stored ^ set(trained))[:4]} …",
                where=str(folder),
                next_step="resume with the recipe of that run",
            )
        for name, parameter in trained.items():
            for key in keys:
                put(parameter, key, file.get_tensor(f"{key}/{name}").to(device))
