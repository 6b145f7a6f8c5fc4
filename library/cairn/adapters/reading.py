"""Saved adapters of every method beside plain LoRA, read with the same distrust (`cairn.adapters.files`).

The config names a method; each of its fields must be one of the method's own keys, which the method's Config checks,
one that has no effect, or PEFT's default. So nothing is imported, downloaded or matched by a pattern at the file's word.
The tensors must be exactly those, name by name and shape by shape, that the method makes on this model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from cairn.adapters.files import WEIGHTS_FILE, file_problems, refused
from cairn.adapters.methods._soft_prompt import SoftPromptMethod
from cairn.adapters.peft_config import INERT, NEUTRAL, SCORES, SPEAKS, because, read_fields
from cairn.adapters.peft_method import PeftMethod
from cairn.adapters.soft_prompts import KEY, SoftPrompt
from cairn.plugins import METHODS

FLOATS = ("F32", "F16", "BF16")
WHOLE = ("I32", "I64")
TAKEN = ("peft_type", "task_type", "target_modules", "auto_mapping")
"""Fields that are read apart from the method's own."""
CHOOSING = ("exclude_modules", "layers_to_transform", "layers_pattern")
"""Fields that leave out some of the layers that `target_modules` names."""


@dataclass(frozen=True)
class Saved:
    """An adapter as data: its method with the Config it was made with, PEFT's config, the layers by name, and the tensors
    by key."""

    folder: Path
    method: PeftMethod
    config: Mapping[str, Any]
    names: list[str]
    tensors: dict[str, torch.Tensor]


def read_other(folder: str | Path) -> Saved:
    """The adapter in a PEFT directory, on the CPU. Raises AdapterError with all reasons."""
    folder = Path(folder)
    problems = list(file_problems(folder)) if folder.is_dir() else ["there is no such directory"]
    config = read_fields(folder, problems) if not problems else None
    method = _method(config, problems) if config is not None else None
    tensors = _tensors(folder / WEIGHTS_FILE, problems) if config is not None else {}
    if problems or config is None or method is None:
        raise refused(folder, problems)
    return Saved(folder, method, config, list(config.get("target_modules") or ()), tensors)


def attach_other(model: Any, saved: Saved, *, trainable: bool = False) -> Any:
    """A PEFT model over `model` with `saved`, in evaluation mode; `model` is as it was after a refusal (AdapterError)."""
    from peft import get_peft_model_state_dict, set_peft_model_state_dict

    if isinstance(saved.method, SoftPromptMethod):
        prompt = soft_prompt(saved)
        wrong = prompt.misfit(model)
        if wrong:
            raise refused(saved.folder, [wrong])
        return (saved.method.attach_saved(model, prompt) if trainable else prompt.over(model)).eval()
    try:
        adapted = saved.method.inject_saved(model, saved.names, saved.config)
    except Exception as error:  # whatever PEFT makes of numbers that came from anywhere
        _strip(model)
        raise refused(saved.folder, [f"PEFT cannot make it on this model: {error}"]) from error
    wanted = {key: tuple(value.shape) for key, value in get_peft_model_state_dict(adapted).items()}
    found = {key: tuple(value.shape) for key, value in saved.tensors.items()}
    if wanted != found:
        _strip(model)
        raise refused(saved.folder, list(_differences(wanted, found)))
    set_peft_model_state_dict(adapted, saved.tensors)
    if not trainable:
        adapted.requires_grad_(False)
    return adapted.eval()


def soft_prompt(saved: Saved) -> SoftPrompt:
    """The virtual tokens of one that is nothing else. AdapterError unless they are as many as the config says."""
    assert isinstance(saved.method, SoftPromptMethod), saved.method.name
    if saved.config.get("task_type") == SCORES:
        raise refused(saved.folder, ["it scores, and virtual tokens are read here for models that speak"])
    found = {key: tuple(value.shape) for key, value in saved.tensors.items()}
    wanted = {KEY: (saved.method.virtual_tokens, *found.get(KEY, ())[-1:])}
    problems = list(_differences(wanted, found))
    problems += [
        f"the numbers of {key} are whole numbers" for key, v in saved.tensors.items() if not v.is_floating_point()
    ]
    if problems:
        raise refused(saved.folder, problems)
    return SoftPrompt(saved.tensors[KEY], saved.method.into_keys)


def _strip(model: Any) -> None:
    """Take PEFT's layers off again, also where it stopped half-way."""
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils import AuxiliaryTrainingWrapper

    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, BaseTunerLayer):
                setattr(parent, name, child.get_base_layer())
            elif isinstance(child, AuxiliaryTrainingWrapper):
                setattr(parent, name, child.original_module)


def _method(config: Mapping[str, Any], problems: list[str]) -> PeftMethod | None:
    name = str(config.get("peft_type", "")).lower()
    known = METHODS.load(name) if name in METHODS.names() else None
    if known is not None and issubclass(known, PeftMethod):
        other = next((name for field, name in known.variants.items() if config.get(field) not in NEUTRAL), None)
        known = known if other is None else METHODS.load(other)
    if known is None or not issubclass(known, PeftMethod):
        problems.append(f"peft_type is {config.get('peft_type')!r}, which is no method here")
        return None
    if known.refused:
        problems.append(f"the method {name!r} is not taken: {known.refused}")
        return None
    if config.get("task_type") not in (None, SPEAKS, SCORES):
        problems.append(f"task_type is {config['task_type']!r}, neither {SPEAKS} nor {SCORES}")
    names = config.get("target_modules") or []
    if not isinstance(names, list) or not all(_is_path(name) for name in names):
        problems.append("target_modules is no list of module names (regular expressions are not run)")
    values = known.read(config)
    problems.extend(_foreign(known, config))
    try:
        return known(known.Config.parse(values))
    except ValidationError as error:
        problems.extend(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_url=False))
        return None


def _foreign(method: type[PeftMethod], config: Mapping[str, Any]) -> Iterator[str]:
    """Fields that would do something that the method's Config does not know of."""
    defaults = json.loads(json.dumps(method.defaults(), default=_plain))
    for name, value in config.items():
        if name in CHOOSING and value not in NEUTRAL:
            yield f"{name} = {str(value)[:60]} leaves out layers: target_modules must name each one by its path"
            continue
        if name in (*TAKEN, *INERT, *CHOOSING, *method.ignored, *method.words()):
            continue
        if name in defaults and value in NEUTRAL and defaults[name] in NEUTRAL:
            continue
        if name not in defaults or value != defaults[name]:
            what = f"the field {name} = {str(value)[:60]} is not one that the method '{method.name}' takes"
            yield what + because(method.left_out, name)


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, set) else getattr(value, "value", str(value))


def _is_path(name: Any) -> bool:
    return isinstance(name, str) and all(part.isidentifier() or part.isdigit() for part in name.split("."))


def _tensors(path: Path, problems: list[str]) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError, safe_open

    found: dict[str, torch.Tensor] = {}
    try:
        with safe_open(path, framework="pt") as file:
            for key in sorted(file.keys()):
                kind = file.get_slice(key).get_dtype()
                if kind not in (*FLOATS, *WHOLE):
                    problems.append(f"{key[:120]!r} is {kind}, not one of {', '.join((*FLOATS, *WHOLE))}")
                    continue
                found[key] = file.get_tensor(key)
                if kind in FLOATS and not bool(torch.isfinite(found[key]).all()):
                    problems.append(f"{key[:120]!r} holds NaN or infinity")
    except (SafetensorError, OSError, ValueError) as error:
        problems.append(f"{path.name} cannot be read: {error}")
    return found


def _differences(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(wanted.keys() | found.keys()):
        if key not in found:
            yield f"the tensor {key} is missing"
        elif key not in wanted:
            yield f"the tensor {key[:120]!r} has no place on this model"
        elif wanted[key] != found[key]:
            yield f"{key} has the shape {list(found[key])}, this model needs {list(wanted[key])}"
