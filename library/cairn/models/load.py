"""Loading a base model and its tokenizer, with every refusal said in words.

Weights come from safetensors or GGUF only: a pickle runs code. A directory whose weights lack a tensor is refused,
where transformers would fill it with random numbers. Cost: the weights once, memory-mapped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch

from cairn.config.model import Quantization
from cairn.errors import ModelError
from cairn.models.locate import locate
from cairn.models.quantization import finished, loading_options, own_quantization, require_loadable

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")


def load_tokenizer(path: str | Path, revision: str | None = None, *, trust_remote_code: bool = False) -> Any:
    """The tokenizer of a model directory, hub name or GGUF file; padding is the end token where it has none.

    Decoding is exact (no clean-up of spaces). Raises ModelError.
    """
    from transformers import AutoTokenizer

    found = locate(path, revision=revision, trust_remote_code=trust_remote_code)
    if found.is_file():
        from cairn.models.gguf import gguf_tokenizer

        return _finished(gguf_tokenizer(found))
    if not any((found / name).is_file() for name in TOKENIZER_FILES):
        raise ModelError(
            "the directory has no tokenizer",
            where=str(path),
            next_step="copy tokenizer.json and tokenizer_config.json of the base model into it",
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(found, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        raise _unusable("the tokenizer cannot be loaded", path, error) from error
    return _finished(tokenizer)


def load_config(path: str | Path, revision: str | None = None, *, trust_remote_code: bool = False) -> Any:
    """The model's transformers config alone, in milliseconds for a directory. Raises ModelError."""
    from transformers import AutoConfig

    found = locate(path, revision=revision, trust_remote_code=trust_remote_code)
    if found.is_file():
        from cairn.models.gguf import gguf_config

        return gguf_config(found)
    if not (found / "config.json").is_file():
        raise ModelError(
            "the directory has no config.json",
            where=str(path),
            next_step="an adapter's directory is no model: give its base model",
        )
    try:
        return AutoConfig.from_pretrained(found, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        raise _unusable("config.json cannot be used", path, error) from error


def load_model(
    path: str | Path,
    *,
    precision: str,
    attention: str = "auto",
    revision: str | None = None,
    trust_remote_code: bool = False,
    device: Any = "cpu",
    head: Literal["language", "score"] = "language",
    quantization: Quantization | None = None,
) -> Any:
    """The causal language model at `path` (directory, hub name or GGUF file) on `device`, frozen, in evaluation mode.

    precision: "fp32" or "bf16". head: "score" gives a model of `cairn.models.scores` instead. attention: "auto" lets
    transformers choose. quantization: how its linears are kept in few bits, if at all. What an adapter method's
    `attach` makes trainable is trained. Raises ModelError.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()
    found = locate(path, revision=revision, trust_remote_code=trust_remote_code)
    if found.is_file():
        _refuse_of_gguf(path, head, quantization)
        from cairn.models.gguf import gguf_model

        return gguf_model(found, dtype=DTYPES[precision], attention=attention).requires_grad_(False).to(device)
    config = load_config(found, trust_remote_code=trust_remote_code)
    if head == "language":
        _refuse_scorer(config, path)
    _check_weights(found)
    require_loadable(config, quantization, where=str(path))
    options: dict[str, Any] = {"dtype": DTYPES[precision]}
    if attention != "auto":
        options["attn_implementation"] = attention
    if quantization is not None:
        options |= loading_options(config, quantization, dtype=DTYPES[precision])
    if quantization is not None or own_quantization(config) is not None:
        options["device_map"] = {"": device}
    try:
        model, report = _loaders()[head](
            found,
            trust_remote_code=trust_remote_code,
            use_safetensors=True,
            output_loading_info=True,
            **options,
        )
    except ModelError:
        raise
    except Exception as error:
        raise _unusable("the model cannot be loaded", path, error) from error
    _refuse_gaps(report, path)
    if quantization is not None:
        finished(model, quantization, dtype=DTYPES[precision])
    elif "device_map" not in options:
        model = model.to(device)
    return model.eval().requires_grad_(False)


def _refuse_of_gguf(path: str | Path, head: str, quantization: Quantization | None) -> None:
    advice = "give a model directory, as `cairn sample` makes one of a GGUF file"
    if quantization is not None:
        raise ModelError("a GGUF file is quantised already, and is read as floats", where=str(path), next_step=advice)
    if head == "score":
        raise ModelError("a GGUF file holds no scoring head", where=str(path), next_step=advice)


def _loaders() -> dict[str, Callable[..., Any]]:
    from transformers import AutoModelForCausalLM

    from cairn.models.scores import load_scorer

    return {"language": AutoModelForCausalLM.from_pretrained, "score": load_scorer}


def _refuse_scorer(config: Any, path: str | Path) -> None:
    """With tied embeddings its weights would speak without a word of complaint."""
    from cairn.models.scores import is_scorer

    if is_scorer(config):
        raise ModelError(
            "it is a reward model: it scores and does not speak",
            where=str(path),
            next_step="ask it for scores, or give a language model",
        )


def position_limit(config: Any) -> int | None:
    """The longest sequence in tokens that the model has positions for; None where it has no limit."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    limit = getattr(text, "max_position_embeddings", None) or getattr(text, "n_positions", None)
    return int(limit) if limit else None


def require_positions(config: Any, length: int, *, where: str) -> None:
    """A ModelError when `length` tokens (the recipe key `where`) are more than the model has positions for."""
    limit = position_limit(config)
    if limit is not None and length > limit:
        raise ModelError(
            f"{length} tokens are more than the {limit} positions of the model",
            where=where,
            next_step=f"set {where} to at most {limit}",
        )


def _check_weights(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise _unusable("the index of the weights cannot be read", index, error) from error
        missing = sorted(shard for shard in shards if not (folder / Path(shard).name).is_file())
        if missing:
            raise ModelError(
                f"{len(missing)} weight files are missing: {', '.join(missing[:3])}",
                where=str(folder),
                next_step="copy or download them again",
            )
    elif not (folder / "model.safetensors").is_file():
        pickled = sorted(file.name for pattern in PICKLED for file in folder.glob(pattern))
        raise ModelError(
            f"the weights are pickles ({', '.join(pickled[:3])})" if pickled else "the directory has no weights",
            where=str(folder),
            next_step="convert them: a pickle can run code, so only safetensors and GGUF are read"
            if pickled
            else "it needs model.safetensors, alone or with an index of shards",
        )


def _refuse_gaps(report: Any, path: str | Path) -> None:
    missing = sorted(str(key) for key in report["missing_keys"])
    if missing:
        raise ModelError(
            f"the weights lack {len(missing)} tensors that the config asks for, first {missing[0]}",
            where=str(path),
            next_step="config and weights are of different models: download both again",
        )


def _finished(tokenizer: Any) -> Any:
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.clean_up_tokenization_spaces = False
    return tokenizer


def _unusable(what: str, path: str | Path, error: Exception) -> ModelError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = lines[0][:300] if lines else type(error).__name__
    remote = "set model.trust_remote_code=true if you trust its code" if "trust_remote_code" in str(error) else ""
    kernels = "set model.attention=auto" if re.search(r"attn_implementation|flash.?att", str(error), re.I) else ""
    return ModelError(
        f"{what}: {reason}", where=str(path), next_step=remote or kernels or "check that the download is complete"
    )
