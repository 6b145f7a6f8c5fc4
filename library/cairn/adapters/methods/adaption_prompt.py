"""LLaMA-Adapter (Zhang et al. 2023, arXiv 2303.16199): gated prompts that the upper attentions see. Refused here."""

from __future__ import annotations

from cairn.adapters.peft_method import PeftMethod


class AdaptionPrompt(PeftMethod):
    """Prompts inside the attention."""

    refused = (
        "PEFT has it for llama, mistral and gpt2 alone, in modules that none of its switches reaches: what is compared "
        "with the base would be compared with the adapter; a prefix does much the same on every architecture"
    )
