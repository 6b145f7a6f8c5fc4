"""Poly (Ponti et al. 2022, arXiv 2202.13914): a task mixes LoRAs of an inventory by a learnt choice. Refused here."""

from __future__ import annotations

from cairn.adapters.peft_method import PeftMethod


class Poly(PeftMethod):
    """An inventory of LoRAs, mixed task by task."""

    refused = "every row needs the number of its task, in training and in generation, which no record has"
