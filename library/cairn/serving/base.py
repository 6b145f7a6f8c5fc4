"""The base model of a service: loaded once, frozen, with the catalogue of the names that go with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from cairn.models.identity import base_sha256, tokenizer_sha256
from cairn.models.load import load_model, load_tokenizer
from cairn.serving.catalogue import Catalogue
from cairn.serving.settings import ServiceSettings


@dataclass(frozen=True)
class Base:
    """What a replica holds."""

    model: Any
    tokenizer: Any
    catalogue: Catalogue


def load_base(settings: ServiceSettings) -> Base:
    """Model, tokenizer and catalogue; ModelError says why not. Sets the compute threads of this process."""
    torch.set_num_threads(settings.threads or max(1, int(settings.cpus_per_replica)))
    remote = settings.trust_remote_code
    tokenizer = load_tokenizer(settings.model, settings.revision, trust_remote_code=remote)
    model = load_model(
        settings.model,
        precision=settings.precision,
        attention=settings.attention,
        revision=settings.revision,
        trust_remote_code=remote,
        device=settings.device,
        quantization=settings.quantized,
    )
    catalogue = Catalogue(
        model,
        base_name=settings.base_name,
        base_path=settings.model,
        storage=settings.storage,
        base_sha256=base_sha256(settings.model),
        tokenizer_sha256=tokenizer_sha256(tokenizer),
    )
    return Base(model, tokenizer, catalogue)
