"""Multitask prompt tuning (Wang et al. 2023, arXiv 2303.02861): one prompt, turned into each task's. Refused here."""

from __future__ import annotations

from cairn.adapters.peft_method import PeftMethod


class MultitaskPromptTuning(PeftMethod):
    """A shared prompt times a factor of each task."""

    refused = "every row needs the number of its task, in training and in generation, which no record has: train a prompt_tuning for each task"
