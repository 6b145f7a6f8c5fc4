"""Quantised bases: weights in 4 or 8 bits through bitsandbytes, on a GPU or a CPU, and what is true of them.

The quantised numbers depend on the file and on `Quantization` alone, not on the precision of the run: every weight is
quantised from fp32, the rest (embeddings, norms, head) is then rounded to the run's precision. So an adapter meets the
same base in training, evaluation, generation and merging. A layer computes with its dequantised weight
(`kernels/int8_linear.py`; bitsandbytes' own in 4 bits; Dettmers et al. 2023, QLoRA, arXiv 2305.14314),
and nothing ever writes to it.

Norms and head are not raised to fp32 as PEFT's `prepare_model_for_kbit_training` does: that would double the residual
stream; losses are taken in fp32 anyway, and checkpointing without reentry needs no gradient at its input.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from cairn.config.model import Quantization
from cairn.errors import ModelError, did_you_mean
from cairn.models.scores import HEAD
from cairn.models.skeleton import skeleton
from cairn.models.unwrap import base_of

BLOCK, DOUBLE_BLOCK = 64, 256
"""Weights that share a scale, scales that share one of their own (bitsandbytes' defaults; QLoRA, section 3)."""
LAYERS = ("Linear4bit", "Linear8bitLt", "Int8Linear")
PACKAGES = {"gptq": ("optimum", "gptqmodel"), "awq": ("gptqmodel",)}
"""What transformers needs to load a model that was quantised so."""


def loading_options(config: Any, quantization: Quantization, *, dtype: torch.dtype) -> dict[str, Any]:
    """What transformers' `from_pretrained` is told beside the device, for the model of `config`; then it is `finished`."""
    from transformers import BitsAndBytesConfig

    skipped = left_alone(skeleton(config), quantization.keep) if quantization.keep else None
    four = quantization.kind != "int8"
    return {
        "dtype": torch.float32,
        "quantization_config": BitsAndBytesConfig(
            load_in_4bit=four,
            load_in_8bit=not four,
            bnb_4bit_quant_type=quantization.kind if four else "nf4",
            bnb_4bit_use_double_quant=four and quantization.double,
            bnb_4bit_compute_dtype=compute_dtype(quantization, dtype),
            llm_int8_threshold=0.0,
            llm_int8_skip_modules=skipped,
        ),
    }


def finished(model: Any, quantization: Quantization, *, dtype: torch.dtype) -> Any:
    """`model`, as transformers loaded it, with its other weights in `dtype` and layers that compute alike everywhere."""
    from cairn.models.kernels.int8_linear import use_int8_linears

    use_int8_linears(model, compute=compute_dtype(quantization, dtype))
    quantised = {id(layer.weight) for layer in quantised_linears(model).values()}
    for layer in quantised_linears(model).values():
        layer.support_avx512bf16_for_cpu = False  # bitsandbytes would repack the weight in place, and round to bf16
    strict = set(getattr(model, "_keep_in_fp32_modules_strict", None) or ())
    for name, parameter in model.named_parameters():
        if id(parameter) not in quantised and not strict & set(name.split(".")):
            parameter.data = parameter.data.to(dtype)
    model.config.dtype = dtype
    return model


def quantised_linears(model: nn.Module) -> dict[str, Any]:
    """Path in the bare model → each linear of bitsandbytes, also under an adapter."""
    return {
        path.removesuffix(".base_layer"): module
        for path, module in base_of(model).named_modules()
        if isinstance(module, nn.Linear) and type(module).__name__ in LAYERS
    }


def is_quantised(model: nn.Module) -> bool:
    """Whether some of its weights are no floats, in whatever way they were quantised."""
    base = base_of(model)
    return bool(quantised_linears(model)) or own_quantization(base.config) is not None


def quantised_bytes(model: nn.Module) -> tuple[int, int]:
    """(bytes of the quantised weights with their scales and codebooks, bytes of the same weights in fp32).

    Biases are left out of both.
    """
    layers = quantised_linears(model).values()
    return sum(tensor.nbytes for _, tensor in _numbers(model)), sum(
        4 * layer.in_features * layer.out_features for layer in layers
    )


def quantised_sha256(model: nn.Module) -> str:
    """64 hex digits over every quantised number of `model`: packed weights, scales, codebooks."""
    digest = hashlib.sha256()
    for name, tensor in _numbers(model):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def dequantised(model: Any) -> Any:
    """`model` in place with plain fp32 linears of the same numbers: what an adapter beside the quantised ones has seen."""
    from cairn.models.gguf import unmark

    for path, layer in quantised_linears(model).items():
        model.set_submodule(path, dequantised_linear(layer))
    for name in ("is_loaded_in_4bit", "is_loaded_in_8bit"):
        vars(model).pop(name, None)
    return unmark(model)


def dequantised_linear(layer: Any) -> nn.Module:
    """The plain fp32 layer of the same numbers."""
    plain = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None, device="meta")
    plain.weight = nn.Parameter(dequantised_weight(layer), requires_grad=False)
    if layer.bias is not None:
        plain.bias = layer.bias
    return _as_before(plain, layer)


def dequantised_weight(layer: Any) -> torch.Tensor:
    """fp32 [out, in] of a quantised linear."""
    if hasattr(layer, "dequantized"):
        return layer.dequantized()
    from bitsandbytes.functional import dequantize_4bit

    return dequantize_4bit(layer.weight.data, layer.weight.quant_state).float()


def _as_before(plain: nn.Linear, layer: Any) -> nn.Module:
    """GPT-2's Conv1D, whose weight is [in, out], where transformers put a linear in the place of one."""
    if getattr(layer, "source_cls", nn.Linear).__name__ != "Conv1D":
        return plain
    from transformers.pytorch_utils import Conv1D

    with torch.device("meta"):
        before = Conv1D(plain.out_features, plain.in_features)
    before.weight = nn.Parameter(plain.weight.t().contiguous(), requires_grad=False)
    before.bias = plain.bias
    return before


def _numbers(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for path, layer in quantised_linears(model).items():
        yield f"{path}.weight", layer.weight.data
        if hasattr(layer, "scales"):
            yield f"{path}.scales", layer.scales()
            continue
        state = layer.weight.quant_state
        yield f"{path}.absmax", state.absmax
        yield f"{path}.code", state.code
        if state.nested:
            yield f"{path}.offset", state.offset
            yield f"{path}.absmax2", state.state2.absmax
            yield f"{path}.code2", state.state2.code


def quantised_layer_bytes(inputs: int, outputs: int, quantization: Quantization) -> int:
    """What the weight of a linear of that shape takes: its numbers, scales and, in 4 bits, fp32 codebooks of its own."""
    count = inputs * outputs
    if quantization.kind == "int8":
        return count + 4 * outputs
    blocks = -(-count // BLOCK)
    scales = 4 * blocks
    if quantization.double:
        scales = blocks + 4 * (-(-blocks // DOUBLE_BLOCK) + 1 + 2**8)
    return -(-count // 2) + scales + 4 * 2**4


def quantised_paths(model: Any, quantization: Quantization) -> list[str]:
    """Paths of the linears of a plain `model`, on the meta device or not, that loading would quantise."""
    from transformers.pytorch_utils import Conv1D
    from transformers.quantizers.quantizers_utils import should_convert_module

    patterns = left_alone(model, quantization.keep)
    linears = (path for path, module in model.named_modules() if type(module) is nn.Linear or type(module) is Conv1D)
    return [path for path in linears if should_convert_module(path, patterns)]


def left_alone(model: Any, keep: tuple[str, ...]) -> list[str]:
    """What transformers leaves alone by itself, which it forgets when told more, the scoring head, and `keep`.

    Raises ModelError for a name in `keep` that no module has.
    """
    from transformers.quantizers.base import get_keys_to_not_convert

    paths = dict(model.named_modules()).keys()
    names = {path.rpartition(".")[2] for path in paths} | paths
    unknown = sorted(set(keep) - names)
    if unknown:
        raise ModelError(
            f"the model has no module called {unknown[0]}",
            where="model.quantization_keep",
            next_step=did_you_mean(unknown[0], names),
        )
    return [*get_keys_to_not_convert(model), HEAD, *keep]


def compute_dtype(quantization: Quantization, dtype: torch.dtype) -> torch.dtype:
    """The dtype of the products with quantised weights in a model of `dtype`."""
    return {None: dtype, "fp32": torch.float32, "bf16": torch.bfloat16}[quantization.compute]


def own_quantization(config: Any) -> str | None:
    """How the model with this transformers config was quantised when it was saved ("gptq", "awq", …); None: not."""
    said = getattr(config, "quantization_config", None)
    if said is None:
        return None
    values = said if isinstance(said, dict) else said.to_dict()
    return str(values.get("quant_method", "")).rpartition(".")[2].lower() or "an unknown method"


def require_loadable(config: Any, quantization: Quantization | None, *, where: str) -> None:
    """A ModelError for a base that is quantised already and shall be again, or whose package is not installed."""
    method = own_quantization(config)
    if method is not None and quantization is not None:
        raise ModelError(
            f"its weights are quantised already ({method}), and model.quantization={quantization.kind} would do it again",
            where=where,
            next_step="leave model.quantization out, or give the model that it was made from",
        )
    missing = [name for name in PACKAGES.get(method or "", ()) if find_spec(name) is None]
    if missing:
        raise ModelError(
            f"its weights are quantised by {method}, and {' and '.join(missing)} is not installed",
            where=where,
            next_step=f"pip install {' '.join(missing)}, or give the model that it was made from, with "
            "model.quantization=nf4",
        )
