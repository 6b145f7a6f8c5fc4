"""ShadowPEFT: a small network runs beside the decoder and corrects what enters each block. Refused here."""

from __future__ import annotations

from cairn.adapters.peft_method import PeftMethod


class Shadow(PeftMethod):
    """A trained network beside the base."""

    refused = (
        "a part of its loss is on the small network's own logits, which PEFT adds only to a loss that the model makes of "
        "labels itself: in any other its last block learns nothing; and its saved config can name a model to load"
    )
