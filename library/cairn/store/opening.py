"""A published version and the base model that its card names, which must be the one it was trained on."""

from __future__ import annotations

from typing import Any

from cairn.adapters.files import CONFIG_FILE, WEIGHTS_FILE
from cairn.errors import AdapterError, ModelError
from cairn.models.identity import base_sha256
from cairn.models.load import load_model
from cairn.models.quantization import dequantised
from cairn.store.store import Adapter


def require_adapter_files(adapter: Adapter) -> None:
    """AdapterError when the version is a whole model or lacks its weights."""
    missing = [name for name in (WEIGHTS_FILE, CONFIG_FILE) if name not in adapter.card.files]
    if missing:
        raise AdapterError(
            f"{adapter.reference} is no PEFT adapter: it has no {' and no '.join(missing)}",
            where=str(adapter.path),
            next_step="a whole model (method full or freeze) can be exported with --to safetensors",
        )


def require_base(adapter: Adapter) -> str:
    """The hash of the base model's weights; AdapterError when they are not those that the adapter was trained on."""
    base = adapter.card.base
    try:
        found = base_sha256(base.path)
    except ModelError as error:
        error.next_step = f"{adapter.reference} needs its base model there; {error.next_step}"
        raise
    if base.sha256 and found != base.sha256:
        raise AdapterError(
            f"the base model of {adapter.reference} has other weights (sha256 {found[:12]}, not {base.sha256[:12]})",
            where=base.path,
            next_step="put the model back that the adapter was trained on",
        )
    return found


def load_base(adapter: Adapter) -> Any:
    """The base model in fp32 that the card names; AdapterError as `require_base`.

    One that was quantised for training is quantised and dequantised again: those are the numbers that the adapter saw.
    """
    require_base(adapter)
    base = adapter.card.base
    model = load_model(base.path, precision="fp32", quantization=base.quantization)
    return dequantised(model) if base.quantization is not None else model
