"""Tiny random models and a byte-level tokenizer with a chat template, made in a second, for every test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build_tokenizer(*, chat_template: str | None = CHATML) -> Any:
    """256 byte tokens plus <|endoftext|>, <|im_start|>, <|im_end|>: any text round-trips exactly."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        bos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
        clean_up_tokenization_spaces=False,
    )
    if chat_template is not None:
        fast.chat_template = chat_template
    return fast


def build_model(*, seed: int = 0, vocab_size: int = 260, hidden_size: int = 64, layers: int = 2, **config: Any) -> Any:
    """A random Llama in fp32 of about 0.1 M parameters, with the head tied."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    settings = {
        "vocab_size": vocab_size,
        "hidden_size": hidden_size,
        "intermediate_size": 2 * hidden_size,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "bos_token_id": 256,
        "eos_token_id": 256,
        "initializer_range": 0.1,
        **config,
    }
    return LlamaForCausalLM(LlamaConfig(**settings)).eval()


def build_scorer(*, seed: int = 0) -> Any:
    """The same with a head of one number in place of the vocabulary's."""
    import torch
    from transformers import LlamaForSequenceClassification

    torch.manual_seed(seed)
    config = build_model(seed=seed).config
    config.num_labels, config.pad_token_id = 1, 0
    return LlamaForSequenceClassification(config).eval()


def save_tiny(folder: Path, *, chat_template: str | None = CHATML, **config: Any) -> Path:
    """A whole model directory: config, safetensors, tokenizer, chat template."""
    tokenizer = build_tokenizer(chat_template=chat_template)
    model = build_model(**config)
    model.config.eos_token_id = tokenizer.eos_token_id
    model.config.bos_token_id = tokenizer.bos_token_id
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
