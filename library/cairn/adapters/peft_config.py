"""What an `adapter_config.json` may say. It comes from anywhere, and PEFT acts on some of its fields: it imports
modules, loads models, compiles regular expressions. So fields are allow-listed, and only plain LoRA passes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

CONFIG_FILE = "adapter_config.json"
MAX_CONFIG_BYTES = 1 << 20
MAX_ALPHA = 1e6

SPEAKS, SCORES = "CAUSAL_LM", "SEQ_CLS"
HEADS = {SCORES: frozenset({"score", "classifier"})}
"""What PEFT trains in full beside an adapter that scores, by the two names that its models give a head."""

READ = (
    "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "peft_type", "task_type", "bias",
    "init_lora_weights", "lora_dropout", "modules_to_save",
)  # fmt: skip
"""Fields with a meaning here."""
INERT = (
    "base_model_name_or_path", "revision", "peft_version", "inference_mode", "target_modules", "exclude_modules",
    "fan_in_fan_out", "layers_to_transform", "layers_pattern", "megatron_core", "qalora_group_size", "eva_config",
)  # fmt: skip
"""Fields that say where the tensors were, which the tensors say themselves, or that act only under another field."""
NEUTRAL: tuple[Any, ...] = (None, False, {}, [], "", "none")
"""Values with which any other field does nothing."""
ALORA = "alora_invocation_tokens"
"""PEFT's field that makes a LoRA wait for an invocation."""
VARIANTS = (
    "use_dora", "lora_bias", ALORA, "trainable_token_indices", "layer_replication",
    "target_parameters",
)  # fmt: skip
"""Fields that make a LoRA another method in all but name."""
TAKEN_OUT = "part of it was taken out of the base's weights at the beginning: convert it when saving"
LEFT_OUT: dict[str, str] = {
    ALORA: "it is an adapter of the method alora",
    "arrow_config": "it mixes other adapters by itself; see `cairn adapters route` and `combine`",
    "corda_config": TAKEN_OUT,
    "ensure_weight_tying": "it adapts tied embeddings, which other adapters share",
    "kasa_config": "it cuts the small singular values off the base's weights, which others stand on, and learns by a loss of its own",
    "layer_replication": "PEFT's copies of a layer share one weight, so that merging adds the update of each to all of "
    "them (peft #1707), and the copies in Qwen's and Gemma's models have no kind of attention",
    "loftq_config": "it stands on weights that PEFT quantised anew, not on its base",
    "lora_bias": "it adds biases, which most bases have no place to merge into",
    "lora_ga_config": TAKEN_OUT,
    "megatron_config": "it stands on Megatron's layers",
    "monteclora_config": "it draws noise in every pass and learns by a loss of its own",
    "use_bdlora": "its blocks are cut for another engine's workers",
    "use_qalora": "it pools the inputs of GPTQ's layers alone",
    "velora_config": "its gradients were made of compressed activations",
}
"""What PEFT can make of a LoRA and is neither trained nor taken here, and why."""
NEUTRAL_INITS = (True, False, "gaussian", "orthogonal", "eva", "mica")
"""Initialisations that leave the base's weights as they were."""


def read_config(folder: Path, problems: list[str]) -> dict[str, Any] | None:
    """The parsed config with only known fields; None, and a problem, where there is none. Adds every problem found."""
    config = read_fields(folder, problems)
    if config is None:
        return None
    problems.extend(_problems(config))
    return {name: value for name, value in config.items() if name in READ + INERT}


def read_fields(folder: Path, problems: list[str]) -> dict[str, Any] | None:
    """The parsed config as it is; None, and a problem, where there is none."""
    path = folder / CONFIG_FILE
    if not path.is_file():
        problems.append(f"{CONFIG_FILE} is missing")
        return None
    if path.stat().st_size > MAX_CONFIG_BYTES:
        problems.append(f"{CONFIG_FILE} has {path.stat().st_size} bytes, at most {MAX_CONFIG_BYTES} are read")
        return None
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        problems.append(f"{CONFIG_FILE} is not JSON: {error}")
        return None
    if not isinstance(config, dict):
        problems.append(f"{CONFIG_FILE} is not a mapping")
        return None
    return config


def says_lora(folder: str | Path) -> bool:
    """Whether the config speaks of a plain LoRA, or of nothing at all; other adapters have readers of their own."""
    config = read_fields(Path(folder), [])
    if config is None or config.get("peft_type") != "LORA":
        return config is None
    whole = config.get("task_type") != SCORES and bool(config.get("modules_to_save"))
    return not whole and all(config.get(name) in NEUTRAL for name in VARIANTS)


def expected_rank(config: Mapping[str, Any], path: str) -> int:
    """The rank that the config gives the module at `path`."""
    return int(_by_pattern(config.get("rank_pattern"), path, config["r"]))


def has_sound_ranks(config: Mapping[str, Any]) -> bool:
    """Whether `expected_rank` can be asked: a rank, and a pattern of ranks or none."""
    return _is_rank(config.get("r")) and not any(_pattern_problems("", config.get("rank_pattern"), _is_rank))


def scaling(config: Mapping[str, Any], path: str) -> float:
    """alpha / rank, or alpha / √rank under rsLoRA, of the module at `path`."""
    rank = expected_rank(config, path)
    alpha = float(_by_pattern(config.get("alpha_pattern"), path, config["lora_alpha"]))
    return alpha / math.sqrt(rank) if config.get("use_rslora") else alpha / rank


def _problems(config: Mapping[str, Any]) -> Iterator[str]:
    if config.get("peft_type") != "LORA":
        yield f"peft_type is {config.get('peft_type')!r}, only LORA can be read"
    task, whole = config.get("task_type"), config.get("modules_to_save") or []
    if task not in (None, SPEAKS, SCORES):
        yield f"task_type is {_short(task)}, neither {SPEAKS} nor {SCORES}"
    heads = HEADS[SCORES] if task == SCORES else frozenset()
    if not isinstance(whole, list) or not all(isinstance(name, str) and name in heads for name in whole):
        yield f"modules_to_save is {_short(whole)}, only the head of an adapter that scores may be"
    if not _is_rank(config.get("r")):
        yield f"r is {config.get('r')!r}, not a positive whole number"
    if not _is_alpha(config.get("lora_alpha")):
        yield f"lora_alpha is {config.get('lora_alpha')!r}, not a number above 0 and at most {MAX_ALPHA:g}"
    if config.get("use_rslora") not in (None, True, False):
        yield f"use_rslora is {config['use_rslora']!r}, not true or false"
    if config.get("bias") not in (None, "none"):
        yield f"bias is {config['bias']!r}: an adapter that changes biases is not plain LoRA"
    if config.get("init_lora_weights", True) not in NEUTRAL_INITS:
        yield f"init_lora_weights is {config['init_lora_weights']!r}, which changes the base: convert it when saving"
    for name, holds in (("rank_pattern", _is_rank), ("alpha_pattern", _is_alpha)):
        yield from _pattern_problems(name, config.get(name), holds)
    for name, value in config.items():
        if name not in READ + INERT and value not in NEUTRAL and not _names_transformers_class(name, value):
            yield f"the field {name} = {_short(value)} is not plain LoRA" + because(LEFT_OUT, name)


def because(reasons: Mapping[str, str], name: str) -> str:
    """The reason as the end of a sentence, where there is one."""
    return f": {reasons[name]}" if name in reasons else ""


def _names_transformers_class(name: str, value: Any) -> bool:
    """PEFT's note of the base's class, written where no task type was given."""
    return (
        name == "auto_mapping"
        and isinstance(value, dict)
        and set(value) == {"base_model_class", "parent_library"}
        and str(value["parent_library"]).startswith("transformers.")
    )


def _pattern_problems(name: str, pattern: Any, holds: Any) -> Iterator[str]:
    if pattern is None:
        return
    if not isinstance(pattern, dict):
        yield f"{name} is {_short(pattern)}, not a mapping"
        return
    for key, value in pattern.items():
        if not is_literal(key):
            yield f"{name} has the key {_short(key)}, which is no module name (regular expressions are not run)"
        if not holds(value):
            yield f"{name} gives {_short(key)} the value {_short(value)}"


def _by_pattern(pattern: Mapping[str, Any] | None, path: str, default: Any) -> Any:
    """PEFT's rule (get_pattern_key) for literal keys: the first key that is the path or the end of it."""
    for key, value in (pattern or {}).items():
        name = _literal(key)
        if path == name or path.endswith(f".{name}"):
            return value
    return default


def is_literal(key: str) -> bool:
    """Whether the key of a pattern is the name of a module, perhaps anchored and escaped."""
    return all(part.isidentifier() or part.isdigit() for part in _literal(key).split("."))


def _literal(key: str) -> str:
    return key.removeprefix("^").replace("\\.", ".")


def _is_rank(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_alpha(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= MAX_ALPHA


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
