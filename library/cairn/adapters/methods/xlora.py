"""X-LoRA (Buehler and Buehler 2024, arXiv 2402.07148): a network mixes trained LoRAs token by token. Refused here."""

from __future__ import annotations

from cairn.adapters.peft_method import PeftMethod


class Xlora(PeftMethod):
    """Trained LoRAs, mixed token by token."""

    refused = (
        "PEFT's generates without a cache only, and scores every prompt twice; adapters are chosen by `cairn adapters "
        "route` and mixed by `cairn adapters combine`"
    )
