"""Small random models of five architectures, on which every method is proven: `cairn adapters methods --prove NAME`."""

from __future__ import annotations

from typing import Any

import torch

ARCHITECTURES = ("llama", "qwen3", "gemma2", "gpt2", "mixtral")
VOCABULARY = 96
INVOKING = 80
"""A token that stands in the middle of one row of the probe, more than once, and not in the other."""
SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "initializer_range": 0.1,
}


def build_specimen(architecture: str) -> Any:
    """An fp32 model in evaluation mode, the same each time."""
    from transformers import AutoConfig, AutoModelForCausalLM

    special: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    if architecture == "gpt2":
        special |= {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": VOCABULARY}
        config = AutoConfig.for_model("gpt2", initializer_range=0.1, **special)
    else:
        experts = {"num_local_experts": 4, "num_experts_per_tok": 2} if architecture == "mixtral" else {}
        config = AutoConfig.for_model(architecture, **SMALL, **special, **experts)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().requires_grad_(False)


def probe_tokens(count: int = 24) -> torch.Tensor:
    """[2, count] token ids, the same each time."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(3, VOCABULARY, (2, count), generator=generator)
