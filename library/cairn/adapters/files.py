"""PEFT directories, written and read. What is read comes from anywhere, so nothing of it is executed: tensors from
safetensors only, allow-listed config fields, caps on size and rank, every tensor of a known name, the right shape and
finite. All reasons for a refusal are told at once. Cost: one pass over the adapter's tensors.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cairn.adapters.peft_config import CONFIG_FILE, SCORES, expected_rank, has_sound_ranks, read_config, scaling
from cairn.errors import AdapterError
from cairn.models.save import share_weights
from cairn.models.scores import HEAD
from cairn.models.skeleton import skeleton

WEIGHTS_FILE = "adapter_model.safetensors"
TEMPLATE_FILE = "chat_template.jinja"
MAX_TEMPLATE_BYTES = 1 << 20
MAX_WEIGHTS_BYTES = 2 << 30
MAX_RANK = 256
MAX_REASONS = 12
KEY = re.compile(r"base_model\.model\.(?P<path>[\w.]+)\.lora_(?P<part>[AB])\.weight")
HEAD_KEY = f"base_model.model.{HEAD}.weight"
DTYPES = ("F32", "F16", "BF16")


@dataclass(frozen=True)
class LoraWeights:
    """A LoRA as data. `layers`: module path in the bare model → (A [rank, in], B [out, rank]); `scaling` per path.

    `rank` is the largest of the ranks; `config` holds the checked fields of the config; `head` [1, width] is what an
    adapter that scores reads its score with.
    """

    rank: int
    alpha: float
    scaling: dict[str, float]
    layers: dict[str, tuple[torch.Tensor, torch.Tensor]]
    config: dict[str, Any]
    head: torch.Tensor | None = None


def save_peft(model: Any, folder: str | Path) -> None:
    """Write the trained adapter of a PEFT model to `folder`: config and safetensors, no embeddings, no model card."""
    model.save_pretrained(
        str(folder), safe_serialization=True, save_embedding_layers=False, selected_adapters=["default"]
    )
    share_weights(folder)
    (Path(folder) / "README.md").unlink(missing_ok=True)


def subtract_beginning(folder: str | Path, beginning: Mapping[str, torch.Tensor]) -> None:
    """Rewrite the LoRA in `folder`, whose base W became W − s·B₀·A₀, for W itself: A ← [A; A₀], B ← [B, −B₀], at twice
    the rank and the same scaling s. `beginning`: A₀ and B₀ by their parameter's name."""
    from safetensors.torch import load_file, save_file

    folder = Path(folder)
    tensors = load_file(folder / WEIGHTS_FILE)
    for name, first in beginning.items():
        key = name.replace(".default.", ".")
        first = first.to(tensors[key].dtype).cpu()
        down = ".lora_A." in name
        tensors[key] = torch.cat([tensors[key], first if down else -first], dim=0 if down else 1).contiguous()
    save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    config = json.loads((folder / CONFIG_FILE).read_text())
    grown = math.sqrt(2) if config.get("use_rslora") else 2
    config |= {"r": 2 * config["r"], "lora_alpha": grown * config["lora_alpha"], "init_lora_weights": True}
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2, sort_keys=True))


def read_lora(
    folder: str | Path, base_config: Any = None, *, max_rank: int = MAX_RANK, scores: bool | None = False
) -> LoraWeights:
    """The LoRA in a PEFT directory, on the CPU in its saved dtype: one that speaks, or that `scores`, or (None) either.

    With `base_config` (a transformers config) every layer must exist in that architecture with that shape.
    Raises AdapterError with all reasons.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise refused(folder, ["there is no such directory"])
    problems = list(file_problems(folder))
    config = read_config(folder, problems) if not problems else None
    if config is None:
        raise refused(folder, problems)
    if scores is not None and scores != (config.get("task_type") == SCORES):
        problems.append(
            "it speaks and gives no score" if scores else "it is a reward adapter: it scores and does not speak"
        )
    layers, head = _read_layers(folder / WEIGHTS_FILE, problems)
    if (head is None) == (config.get("task_type") == SCORES):
        problems.append(f"{HEAD_KEY} is missing" if head is None else f"{HEAD_KEY} has no place in it")
    problems.extend(_rank_problems(layers, config, max_rank))
    if base_config is not None:
        problems.extend(shape_problems(layers, shapes_of(base_config)))
    if problems:
        raise refused(folder, problems)
    return LoraWeights(
        rank=max(a.shape[0] for a, _ in layers.values()),
        alpha=float(config["lora_alpha"]),
        scaling={path: scaling(config, path) for path in layers},
        layers=layers,
        config=config,
        head=head,
    )


def chat_template_of(folder: str | Path) -> str | None:
    """The chat template that an adapter was trained with, where its folder holds one. AdapterError for a huge one."""
    path = Path(folder) / TEMPLATE_FILE
    if not path.is_file():
        return None
    if path.stat().st_size > MAX_TEMPLATE_BYTES:
        raise refused(Path(folder), [f"{TEMPLATE_FILE} has more than {MAX_TEMPLATE_BYTES} bytes"])
    return path.read_text(encoding="utf-8")


def shape_problems(
    layers: Mapping[str, tuple[torch.Tensor, torch.Tensor]], shapes: Mapping[str, tuple[int, int]]
) -> Iterator[str]:
    """What keeps `layers` off a base whose linears have `shapes` (path → (in, out)); nothing when they fit."""
    for path, (a, b) in layers.items():
        if path not in shapes:
            yield f"the base has no linear {path}"
        elif (a.shape[1], b.shape[0]) != shapes[path]:
            found, wanted = (a.shape[1], b.shape[0]), shapes[path]
            yield f"{path} maps {found[0]} → {found[1]} features, the base's maps {wanted[0]} → {wanted[1]}"


def shapes_of(base_config: Any) -> dict[str, tuple[int, int]]:
    """Path → (in, out) of the linears of the architecture that `base_config` describes; allocates no weights."""
    from cairn.models.linears import linear_shapes

    return linear_shapes(skeleton(base_config))


def is_transposed(model: Any, paths: Sequence[str]) -> bool:
    """Whether the linears at `paths` keep their weights as [in, out] (GPT-2's Conv1D), as PEFT wants to be told."""
    from transformers.pytorch_utils import Conv1D

    from cairn.models.unwrap import base_of

    return any(isinstance(base_of(model).get_submodule(path), Conv1D) for path in paths)


def refused(folder: Path, problems: list[str]) -> AdapterError:
    """The error with all reasons."""
    more = len(problems) - MAX_REASONS
    shown = problems[:MAX_REASONS] + ([f"and {more} more"] if more > 0 else [])
    listing = shown[0] if len(shown) == 1 else "".join(f"\n  - {reason}" for reason in shown)
    return AdapterError(
        f"the adapter is refused: {listing}",
        where=str(folder),
        next_step="give a directory of an adapter of this base, saved by PEFT as safetensors",
    )


def file_problems(folder: Path) -> Iterator[str]:
    """What keeps the directory's two files from being opened."""
    weights, config = folder / WEIGHTS_FILE, folder / CONFIG_FILE
    for path in (weights, config):
        if path.exists() and not path.resolve().is_relative_to(folder.resolve()):
            yield f"{path.name} is a link that leads out of the directory"
    if not weights.is_file():
        pickles = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern))
        yield f"{pickles[0]} is a pickle, which can run code" if pickles else f"{WEIGHTS_FILE} is missing"
    elif weights.stat().st_size > MAX_WEIGHTS_BYTES:
        yield f"{WEIGHTS_FILE} has {weights.stat().st_size} bytes, at most {MAX_WEIGHTS_BYTES} are read"


def _read_layers(
    path: Path, problems: list[str]
) -> tuple[dict[str, tuple[torch.Tensor, torch.Tensor]], torch.Tensor | None]:
    from safetensors import SafetensorError, safe_open

    parts: dict[str, dict[str, torch.Tensor]] = {}
    head = None
    try:
        with safe_open(path, framework="pt") as file:
            for key in sorted(file.keys()):
                match = KEY.fullmatch(key)
                problem = _tensor_problem(key, match, file)
                if problem:
                    problems.append(problem)
                elif match is None:
                    head = file.get_tensor(key)
                else:
                    parts.setdefault(match["path"], {})[match["part"]] = file.get_tensor(key)
    except (SafetensorError, OSError, ValueError) as error:
        problems.append(f"{path.name} cannot be read: {error}")
        return {}, None
    return _paired(parts, problems), head


def _tensor_problem(key: str, match: re.Match[str] | None, file: Any) -> str:
    if match is None and key != HEAD_KEY:
        return f"the tensor {key[:120]!r} is no lora_A or lora_B weight"
    header = file.get_slice(key)
    if header.get_dtype() not in DTYPES:
        return f"{key} is {header.get_dtype()}, not one of {', '.join(DTYPES)}"
    if len(header.get_shape()) != 2 or 0 in header.get_shape():
        return f"{key} has the shape {header.get_shape()}, not two dimensions"
    return "" if bool(torch.isfinite(file.get_tensor(key)).all()) else f"{key} holds NaN or infinity"


def _paired(
    parts: Mapping[str, Mapping[str, torch.Tensor]], problems: list[str]
) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    layers = {}
    for path, found in parts.items():
        if set(found) != {"A", "B"}:
            problems.append(f"{path} has lora_{next(iter(found))} and not its partner")
        elif found["A"].shape[0] != found["B"].shape[1]:
            problems.append(f"{path} has lora_A of rank {found['A'].shape[0]}, lora_B of {found['B'].shape[1]}")
        else:
            layers[path] = (found["A"], found["B"])
    if not parts and not problems:
        problems.append(f"{WEIGHTS_FILE} holds no tensors")
    return layers


def _rank_problems(
    layers: Mapping[str, tuple[torch.Tensor, torch.Tensor]], config: Mapping[str, Any], max_rank: int
) -> Iterator[str]:
    for path, (a, _) in layers.items():
        if has_sound_ranks(config) and a.shape[0] != expected_rank(config, path):
            yield f"{path} has rank {a.shape[0]}, the config says {expected_rank(config, path)}"
        if a.shape[0] > max_rank:
            yield f"{path} has rank {a.shape[0]}, at most {max_rank} is allowed"
