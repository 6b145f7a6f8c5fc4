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

from cairn.errors import CairnError, UserError
from cairn.store.durable import storage_errors

PROBE_TOKENS = 64
TOLERANCE = 1e-4
"""Largest difference of a logit in fp32, relative to the largest logit."""


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


def probe(model: Any) -> torch.Tensor:
    """fp32 logits [64, vocabulary] for fixed tokens; PEFT gives those of virtual tokens too, before them."""
    config = model.config.get_text_config()
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(config.vocab_size, (1, PROBE_TOKENS), generator=generator)
    with torch.inference_mode():
        return model(input_ids=tokens, use_cache=False).logits[0, -PROBE_TOKENS:].float()


def require_equal(expected: torch.Tensor, found: torch.Tensor, *, where: Path) -> None:
    """A CairnError when the reloaded model answers otherwise."""
    error = float((expected - found).abs().max() / expected.abs().max().clamp_min(1e-6))
    if not error <= TOLERANCE:
        raise CairnError(
            f"the exported model's logits differ by {error:.2e} (allowed {TOLERANCE:.0e}); it was removed",
            where=str(where),
            next_step="the adapter cannot be exported this way; serve it with its base model, and please report this",
        )
