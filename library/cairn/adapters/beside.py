"""How an adapter of any method is served beside others, exactly: as one change a layer that rows of a batch can differ in.

A method that turns or scales says so itself (`Method.change_of`). Any other is asked through its layer's answers, in
float64 and layer by layer: what it adds to the base's must be a matrix of low rank times the input, and perhaps a bias.
What has no such form is refused in words; it can be approximated (`cairn adapters convert`) or merged.
Cost: an fp64 copy of one layer's weight at a time, and products with a few hundred vectors.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from transformers.pytorch_utils import Conv1D

from cairn.adapters.convert import NOTHING
from cairn.adapters.files import MAX_RANK, LoraWeights, is_transposed, read_lora
from cairn.adapters.linear_change import AdapterChanges, LinearChange
from cairn.adapters.method import Method
from cairn.adapters.peft_config import SCORES, says_lora
from cairn.adapters.plain import plain_lora
from cairn.adapters.range_finder import EXACT, low_rank
from cairn.adapters.reading import attach_other, read_other
from cairn.adapters.soft_prompts import prompt_of
from cairn.errors import AdapterError
from cairn.models.invocation import invocation_of
from cairn.models.quantization import LAYERS, dequantised_linear
from cairn.models.twin import twin
from cairn.models.unwrap import base_of

ADVICE = "make a LoRA of it, whose error is told: cairn adapters convert NAME --rank RANK; or merge it: cairn export"


def read_beside(folder: str | Path, model: Any, *, scores: bool = False) -> LoraWeights | AdapterChanges:
    """What the adapter in a PEFT directory does to `model`, which stays as it is: a LoRA's own weights, or the changes of
    one of another method. `scores`: one that scores is wanted, not one that speaks.

    Raises AdapterError where it is bad, does not fit, or cannot be served beside others.
    """
    if says_lora(folder):
        return read_lora(folder, scores=scores)
    saved = read_other(folder)
    if scores or saved.config.get("task_type") == SCORES:
        raise AdapterError(
            f"it was made by the method '{saved.method.name}', and only LoRAs score beside others"
            if scores
            else "it scores and does not speak",
            where=str(folder),
            next_step="train a reward adapter of the method lora" if scores else "name one that speaks",
        )
    return beside(attach_other(twin(model), saved), saved.method)


def beside(adapted: Any, method: Method) -> LoraWeights | AdapterChanges:
    """What the adapter of a PEFT model does to its base: as LoRA weights where it is nothing else.

    Raises AdapterError with the layer that has no exact form.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils import AuxiliaryTrainingWrapper
    from peft.utils.other import TrainableTokensWrapper

    prompt = prompt_of(adapted)
    if prompt is not None:
        return AdapterChanges({}, method.name, prompt)
    base = base_of(adapted)
    changes: dict[str, LinearChange] = {}
    if not any(isinstance(module, BaseTunerLayer) for module in base.modules()):
        raise _refusal(method, "it stands on no layer", "serve it alone")
    for path, module in base.named_modules():
        if isinstance(module, AuxiliaryTrainingWrapper) and not isinstance(module, TrainableTokensWrapper):
            raise _refusal(method, f"{path} is trained whole", "merge it: cairn export")
        if isinstance(module, BaseTunerLayer):
            change = _rounded(_change(path, module, method))
            if change.rank or change.parts():
                changes[path.removesuffix(".token_adapter")] = change
    invocation = invocation_of(adapted)
    if invocation is not None:
        return AdapterChanges(changes, method.name, invocation=invocation.tokens)
    if not changes or any(change.parts() for change in changes.values()):
        return AdapterChanges(changes, method.name)
    factors = {path: (change.down, change.up) for path, change in changes.items()}
    return plain_lora(factors, transposed=is_transposed(adapted, list(factors)))  # type: ignore[arg-type]


def _change(path: str, layer: Any, method: Method) -> LinearChange:
    from peft.tuners.trainable_tokens import TrainableTokensLayer

    if hasattr(layer, "parameter_name"):
        raise _refusal(method, f"{path}.{layer.parameter_name} is a stack of weights", "merge it: cairn export")
    with torch.no_grad():
        if isinstance(layer, TrainableTokensLayer):
            change = _of_tokens(layer)
        else:
            exact = _in_float64(layer)
            own = method.change_of(exact)
            change = own if own is not None else _from_answers(path, exact, method)
    parts = (change.down, change.up, *change.parts().values())
    if not all(bool(torch.isfinite(part).all()) for part in parts if part is not None):
        raise _refusal(method, f"the change of {path} is not finite", "train it again, at a lower rate")
    return change


def _of_tokens(layer: Any) -> LinearChange:
    """Other rows of an embedding; of a head that is tied to it, by which as many outputs differ."""
    base, tokens = layer.get_base_layer(), torch.tensor(layer.token_indices["default"])
    if isinstance(base, torch.nn.Embedding):
        return LinearChange(tokens=tokens, rows=layer(tokens.to(base.weight.device)).cpu())
    trained = layer.get_merged_weights(["default"])[tokens].double() - base.weight[tokens].double()
    up = torch.nn.functional.one_hot(tokens, base.weight.shape[0]).T
    return LinearChange(down=trained.cpu(), up=up.double())


def _in_float64(layer: Any) -> Any:
    """A copy of a PEFT layer on the CPU, over its base's numbers without quantisation."""
    base = layer.get_base_layer()
    plain = copy.deepcopy(dequantised_linear(base) if type(base).__name__ in LAYERS else base)
    copied = copy.deepcopy(layer, {id(base): plain}).cpu().double().eval()
    known = vars(copied)
    known.update({name: torch.float64 for name, value in known.items() if isinstance(value, torch.dtype)})
    if known.get("quantization_backend") is not None:
        copied.quantization_backend = None
    return copied


def _from_answers(path: str, layer: Any, method: Method) -> LinearChange:
    """What a layer adds to its base's answer: B·A·x + c."""
    base = layer.get_base_layer()
    if not isinstance(base, torch.nn.Linear | Conv1D):
        raise _refusal(method, f"{path} is a {type(base).__name__}")
    inputs, outputs = layer.in_features, layer.out_features

    def added(x: torch.Tensor) -> torch.Tensor:
        """[n, in] → [n, out]."""
        more: torch.Tensor = layer(x[None])[0] - base(x[None])[0]
        return more

    constant = added(torch.zeros(1, inputs, dtype=torch.float64))
    bias = constant[0] if bool(constant.any()) else None
    probe = torch.randn(1, inputs, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    once, twice = added(probe) - constant, added(2 * probe) - constant
    if float(once.norm()) <= NOTHING * float(base(probe).norm()):
        return LinearChange(bias=bias)
    if float((twice - 2 * once).norm()) > EXACT * float(once.norm()):
        raise _refusal(method, f"{path} is not linear in its input any more", "serve it alone, on a base of its own")
    most = min(MAX_RANK, (inputs * outputs - 1) // (inputs + outputs))
    found = low_rank(lambda x: added(x) - constant, inputs, most=most)
    if found is None:
        raise _refusal(method, f"the change of {path} has no rank of at most {most}")
    return LinearChange(down=found[0], up=found[1], bias=bias)


def _rounded(change: LinearChange) -> LinearChange:
    """In fp32, on the CPU."""
    found = {name: getattr(change, name) for name in LinearChange.__dataclass_fields__}
    return LinearChange(
        **{n: v.float().contiguous() if v is not None and v.is_floating_point() else v for n, v in found.items()}
    )


def _refusal(method: Method, why: str, advice: str = ADVICE) -> AdapterError:
    return AdapterError(
        f"an adapter of the method '{method.name}' cannot be served beside others: {why}", next_step=advice
    )
