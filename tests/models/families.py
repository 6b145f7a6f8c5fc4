"""Tiny random models of several families, each made in milliseconds."""

from __future__ import annotations

from typing import Any

import torch

COMMON: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
}
FAMILIES = ("llama", "gpt2", "gemma2", "gemma3_text", "qwen2", "qwen3", "mistral", "phi3", "gpt_neox", "qwen3_moe")
SDPA_MISSING = ("gemma2",)
"""transformers 5.23 runs Gemma 2 in eager only: its attention has a softcap."""


def build_family(family: str, **changes: Any) -> Any:
    """A seeded model of `family` in evaluation mode; `changes` go into its config."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    attention = changes.pop("attn_implementation", "eager")
    settings = {**_settings(family), **changes}
    config = AutoConfig.for_model(family, **settings)
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()


def _settings(family: str) -> dict[str, Any]:
    if family == "gpt2":
        sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
        return {"vocab_size": 100, "initializer_range": 0.2, **sizes}
    settings = dict(COMMON)
    if family in ("gemma2", "gemma3_text", "mistral", "phi3"):
        settings.update(sliding_window=3, pad_token_id=0)
    if family == "gpt_neox":
        del settings["head_dim"], settings["num_key_value_heads"]
    if family == "qwen3_moe":
        settings.update(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, decoder_sparse_step=1)
    return settings
