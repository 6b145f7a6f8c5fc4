"""The transformers model under whatever trains it: a DeepSpeed engine, a PEFT wrapper, or nothing.

An engine's own `config` is DeepSpeed's, and a wrapper's `forward` hides the model's signature, so whoever asks for
either goes through here.
"""

from __future__ import annotations

from typing import Any

from torch import nn


def base_of(model: Any) -> Any:
    """The innermost transformers model; `model` itself where nothing is wrapped."""
    module = getattr(model, "module", None)
    inner: Any = module if isinstance(module, nn.Module) else model
    peft_base = getattr(inner, "get_base_model", None)
    return peft_base() if peft_base is not None else inner


def prompted(model: Any) -> Any:
    """The model with virtual tokens (`cairn.models.virtual_tokens`) that `model` or its engine is; None for any other."""
    inner = getattr(model, "module", None)
    inner = inner if isinstance(inner, nn.Module) else model
    return inner if getattr(inner, "virtual_tokens", 0) and isinstance(inner, nn.Module) else None


def text_config(model: Any) -> Any:
    """The configuration of the language model in `model` (of the text part where a model sees images too)."""
    config = base_of(model).config
    return config.get_text_config() if hasattr(config, "get_text_config") else config
