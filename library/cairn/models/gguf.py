"""GGUF, read through transformers and, on wish, written as an ordinary model directory.

transformers dequantises the weights but leaves the quantiser's marks on model and config, which make training and
saving refuse; they come off here. Its converter also gives every byte-level tokenizer GPT-2's splitting rule; the
rule named in the file (`tokenizer.ggml.pre`) is put back where it keeps digits apart. Cost: the weights in fp32 once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from cairn.errors import ModelError
from cairn.models.save import save_model

DIGITS_APART = ("smollm", "starcoder", "refact", "command-r", "codeshell")
"""Values of `tokenizer.ggml.pre` that split off single digits before GPT-2's rule (llama.cpp, llama-vocab.cpp)."""
QUANTISER_MARKS = ("hf_quantizer", "quantization_method", "quantization_config")


def gguf_model(path: Path, *, dtype: torch.dtype, attention: str = "auto") -> Any:
    """The dequantised model of a GGUF file, free of the quantiser's marks, in evaluation mode. Raises ModelError."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    options = {} if attention == "auto" else {"attn_implementation": attention}
    try:
        model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=dtype, **options)
    except Exception as error:
        raise _unreadable(path, error) from error
    return unmark(model).eval()


def gguf_config(path: Path) -> Any:
    """The config of a GGUF file without reading its tensors. Raises ModelError."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    except Exception as error:
        raise _unreadable(path, error) from error
    vars(config).pop("quantization_config", None)
    return config


def gguf_tokenizer(path: Path) -> Any:
    """The tokenizer of a GGUF file with the splitting rule that the file names. Raises ModelError."""
    from gguf import GGUFReader
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        rule = GGUFReader(path).fields.get("tokenizer.ggml.pre")
    except Exception as error:
        raise _unreadable(path, error) from error
    if rule is not None and rule.contents() in DIGITS_APART:
        _split_digits(tokenizer)
    return tokenizer


def write_directory(path: Path, folder: Path) -> None:
    """The GGUF file at `path` as a model directory: fp32 safetensors, config, generation config, tokenizer, template.

    fp32 because a dequantised weight, scale · integer + minimum, fits no shorter float exactly.
    """
    model, tokenizer = gguf_model(path, dtype=torch.float32), gguf_tokenizer(path)
    tokenizer.model_max_length = model.config.max_position_embeddings
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    folder.mkdir(parents=True, exist_ok=True)
    save_model(model, folder)
    tokenizer.save_pretrained(folder)


def unmark(model: Any) -> Any:
    """Take the quantiser's marks off a model whose weights are plain floats."""
    for name in QUANTISER_MARKS:
        for owner in (model, model.config):
            if name in vars(owner):
                delattr(owner, name)
    model.is_quantized = False
    return model


def _split_digits(tokenizer: Any) -> None:
    from tokenizers import pre_tokenizers

    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )


def _unreadable(path: Path, error: Exception) -> ModelError:
    reason = (str(error).splitlines() or [type(error).__name__])[0][:300]
    return ModelError(
        f"the GGUF file cannot be loaded: {reason}",
        where=str(path),
        next_step="check its sha256, or convert it to a model directory with llama.cpp or transformers",
    )
