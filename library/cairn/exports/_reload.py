"""What every export shares: a target that appears whole or not at all, and the check that it opens and answers alike.

The check runs both models once over 64 fixed tokens; the cost is loading the model twice.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from cairn.errors import AdapterError, CairnError, ModelError, UserError
from cairn.models.identity import base_sha256
from cairn.models.load import load_model
from cairn.models.quantization import dequantised
from cairn.store.durable import storage_errors
from cairn.store.store import Adapter

PROBE_TOKENS = 64
TOLERANCE = 1e-4
"""Largest difference of a logit in fp32, relative to the largest logit."""
WEIGHT_FILES = ("adapter_model.safetensors", "adapter_config.json")


@contextlib.contextmanager
def fresh_target(target: Path) -> Iterator[Path]:
    """A draft folder that becomes `target` when the block ends well; UserError when there is something already."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError("there is something already", where=str(target), next_step="choose a new or an empty folder")
    draft = target.parent / f".{target.name}.{uuid.uuid4().hex}"
    with storage_errors(target):
        draft.mkdir(parents=True)
        try:
            yield draft
            os.rename(draft, target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def require_adapter_files(adapter: Adapter) -> None:
    """AdapterError when the version is a whole model or lacks its weights."""
    missing = [name for name in WEIGHT_FILES if name not in adapter.card.files]
    if missing:
        raise AdapterError(
            f"{adapter.reference} is no PEFT adapter: it has no {' and no '.join(missing)}",
            where=str(adapter.path),
            next_step="a whole model (method full) can be exported with --to safetensors",
        )


def load_base(adapter: Adapter) -> Any:
    """The base model in fp32 that the card names; AdapterError when its weights are not those it was trained on.

    One that was quantised for training is quantised and dequantised again: those are the numbers that the adapter saw.
    """
    base = adapter.card.base
    try:
        found = base_sha256(base.path) if base.sha256 else ""
    except ModelError as error:
        error.next_step = f"{adapter.reference} needs its base model there; {error.next_step}"
        raise
    if found != base.sha256:
        raise AdapterError(
            f"the base model of {adapter.reference} has other weights (sha256 {found[:12]}, not {base.sha256[:12]})",
            where=base.path,
            next_step="put the model back that the adapter was trained on",
        )
    model = load_model(base.path, precision="fp32", quantization=base.quantization)
    return dequantised(model) if base.quantization is not None else model


def probe(model: Any) -> torch.Tensor:
    """fp32 logits [64, vocabulary] for fixed tokens."""
    config = model.config.get_text_config()
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(config.vocab_size, (1, PROBE_TOKENS), generator=generator)
    with torch.inference_mode():
        return model(input_ids=tokens, use_cache=False).logits[0].float()


def require_equal(expected: torch.Tensor, found: torch.Tensor, *, where: Path) -> None:
    """A CairnError when the reloaded model answers otherwise."""
    error = float((expected - found).abs().max() / expected.abs().max().clamp_min(1e-6))
    if not error <= TOLERANCE:
        raise CairnError(
            f"the exported model's logits differ by {error:.2e} (allowed {TOLERANCE:.0e}); it was removed",
            where=str(where),
            next_step="the adapter cannot be exported this way; serve it with its base model, and please report this",
        )
