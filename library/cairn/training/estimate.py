"""How much memory a worker of a run will need, said before a weight is loaded.

The model is built on the meta device, adapter and all, so that parameters are counted, not guessed; the optimizer takes
a step there, and what it then holds is counted too. ZeRO divides optimizer state and masters from stage 1, gradients
from stage 2, weights at stage 3 (Rajbhandari et al. 2020, arXiv 1910.02054, section 5). Activations: see
`cairn.models.activations`. Cost: a forward pass without arithmetic, some seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from cairn.config.recipe import Recipe
from cairn.errors import UserError
from cairn.models.activations import kept_bytes, register_counted_attention
from cairn.models.head import CHUNK_LOGITS
from cairn.models.kernels.measure import packed_dtype
from cairn.models.linears import linear_shapes
from cairn.models.load import DTYPES, load_config
from cairn.models.locate import locate
from cairn.models.quantization import own_quantization, quantised_layer_bytes, quantised_paths
from cairn.models.skeleton import skeleton
from cairn.models.unwrap import base_of, text_config
from cairn.plugins import METHODS, OPTIMIZERS, STAGES
from cairn.training.reference import Kind, kind_of_reference
from cairn.training.start import start_of

FP32_BYTES = 4


@dataclass(frozen=True)
class Part:
    """What a worker holds, in bytes; `on_host`: in the host's memory beside a GPU's. `note`: how it comes about."""

    name: str
    bytes: int
    note: str = ""
    on_host: bool = False


@dataclass(frozen=True)
class Planned:
    """The model to train, on the meta device, and path → (in, out) of the base's linears that will be quantised."""

    recipe: Recipe
    config: Any
    model: Any
    quantised: dict[str, tuple[int, int]]

    @property
    def element_bytes(self) -> int:
        """Of a weight that is not quantised."""
        return DTYPES[self.recipe.training.precision].itemsize

    @property
    def trained(self) -> dict[str, nn.Parameter]:
        """The trained parameters by name."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    @property
    def trained_count(self) -> int:
        """How many numbers they are."""
        return sum(parameter.numel() for parameter in self.trained.values())


def estimate(recipe: Recipe, *, on_gpu: bool) -> list[Part]:
    """The parts of one worker's memory; ModelError and AdapterError as the run itself would raise them.

    Raises UserError where a method looks at the base's numbers, or a layer's kernel is not known to the meta device.
    """
    settings, length = recipe.training, recipe.data.sequence_length
    tokens = f"{settings.micro_batch} × {length} tokens"
    with _without_values(recipe.adapter.name):
        planned, recomputed = _planned(recipe), settings.gradient_checkpointing
        kept = kept_bytes(planned.model, rows=settings.micro_batch, length=length, recomputed=recomputed)
    parts = [
        *_weights(planned),
        *_optimizer_parts(planned),
        *_reference_parts(planned),
        Part("activations", kept, tokens + (", recomputed" if recomputed else "")),
        Part("logits and loss", _logits_bytes(planned), "a chunk, its copy in fp32 and its gradient"),
    ]
    if not on_gpu and settings.zero_stage < 3 and own_quantization(planned.config) is None:
        parts.append(Part("prepacked weights", _packed_bytes(planned), "for products on a CPU, where they pay"))
    return [part for part in parts if part.bytes]


@contextmanager
def _without_values(method: str) -> Iterator[None]:
    try:
        yield
    except (NotImplementedError, RuntimeError) as error:  # NotImplementedError: torch's word for "not on meta"
        reason = str(error).partition("\n")[0][:120]
        raise UserError(
            f"the method '{method}' on this model cannot be followed without weights ({reason})",
            where="adapter.name",
            next_step="estimate with lora or in bf16, which is close, or try training.steps=1",
        ) from error


def _planned(recipe: Recipe) -> Planned:
    stage, start, section = STAGES.make(recipe.stage), start_of(recipe), recipe.model
    whole = start is not None and start.is_whole_model
    path, revision = (str(start.folder), None) if start is not None and whole else (section.path, section.revision)
    config = load_config(path, revision, trust_remote_code=section.trust_remote_code)
    config._attn_implementation = register_counted_attention()
    dtype, method, quantization = DTYPES[recipe.training.precision], METHODS.make(recipe.adapter), section.quantized
    with torch.device("meta"):
        base = skeleton(config, head=stage.head, dtype=dtype, trust_remote_code=section.trust_remote_code)
        shapes = linear_shapes(base)
        paths = quantised_paths(base, quantization) if quantization is not None else []
        model = method.attach(base) if start is None or whole else method.go_on(base, start.folder)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(dtype)
    return Planned(recipe, config, model.train(), {path: shapes[path] for path in paths})


def _weights(planned: Planned) -> Iterator[Part]:
    """Base and adapter; of a base that was saved quantised the size of its files."""
    recipe, quantization = planned.recipe, planned.recipe.model.quantized
    workers, precision = recipe.training.most_workers, recipe.training.precision
    share = workers if recipe.training.zero_stage == 3 else 1
    frozen = sum(p.numel() for p in planned.model.parameters() if not p.requires_grad)
    counts = [inputs * outputs for inputs, outputs in planned.quantised.values()]
    floats = (frozen - sum(counts)) * planned.element_bytes
    if method := own_quantization(planned.config):
        files = locate(recipe.model.path, revision=recipe.model.revision).glob("*.safetensors")
        yield Part("base", sum(file.stat().st_size for file in files), f"as it was saved, quantised by {method}")
    else:
        yield Part("base, floats", floats // share, f"{precision}{_divided(share)}")
    if quantization is not None:
        held = sum(quantised_layer_bytes(*shape, quantization) for shape in planned.quantised.values())
        yield Part("base, quantised", held, f"{quantization.kind}, {len(counts)} linears")
        largest = max(counts, default=0) * (FP32_BYTES + planned.element_bytes)
        yield Part("dequantised weight", largest, "the largest, while it is used")
    trained = planned.trained_count
    yield Part(
        "trained weights", trained * planned.element_bytes // share, f"{trained:,} in {precision}{_divided(share)}"
    )


def _divided(share: int) -> str:
    return f", divided among {share} workers" if share > 1 else ""


def _optimizer_parts(planned: Planned) -> Iterator[Part]:
    settings, count = planned.recipe.training, planned.trained_count * FP32_BYTES
    stage, workers, host = settings.zero_stage, settings.most_workers, settings.offload_optimizer
    of_gradients, of_state = workers if stage >= 2 else 1, workers if stage >= 1 else 1
    yield Part("gradients", count // of_gradients, f"fp32{_divided(of_gradients)}")
    if stage in (1, 2):
        yield Part("reduce bucket", count, "gradients on their way to other workers")
    if stage >= 1 or settings.precision == "bf16":
        yield Part("fp32 masters", count // of_state, f"of the trained weights{_divided(of_state)}", host)
    state = _state_bytes(planned)
    yield Part("optimizer state", state // of_state, f"{planned.recipe.optimizer.name}{_divided(of_state)}", host)


def _state_bytes(planned: Planned) -> int:
    """What the optimizer holds after a step on fp32 parameters of these shapes, its parameters left out."""
    named = {
        name: nn.Parameter(torch.empty(parameter.shape, dtype=torch.float32, device="meta"))
        for name, parameter in planned.trained.items()
    }
    optimizer = OPTIMIZERS.make(planned.recipe.optimizer).build(list(named.items()))
    for parameter in named.values():
        parameter.grad = torch.empty_like(parameter)
    optimizer.step()
    tensors = (value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value))
    return sum(tensor.nbytes for tensor in tensors)


def _reference_parts(planned: Planned) -> Iterator[Part]:
    """Another model, or a copy of what is trained; an adapter that is switched off takes nothing."""
    stage = STAGES.make(planned.recipe.stage)
    kind = kind_of_reference(stage, planned.recipe)
    if stage.ahead or kind in (Kind.NONE, Kind.ADAPTER_OFF):
        return
    if kind is Kind.OTHER_MODEL:
        parameters = list(skeleton(load_config(str(stage.reference))).parameters())
    elif kind is Kind.MODEL_COPY:
        parameters = list(planned.model.parameters())
    else:
        parameters = list(planned.trained.values())
    count = sum(parameter.numel() for parameter in parameters)
    note = str(stage.reference) if kind is Kind.OTHER_MODEL else kind.value
    yield Part("reference model", count * planned.element_bytes, note)


def _logits_bytes(planned: Planned) -> int:
    """Of `cairn.models.head`: a chunk in the model's dtype, in fp32 and its gradient, and a gradient of each position."""
    config, settings = text_config(planned.model), planned.recipe.training
    tokens = settings.micro_batch * planned.recipe.data.sequence_length
    columns = config.vocab_size if STAGES.make(planned.recipe.stage).head == "language" else 1
    chunk = min(tokens * columns, max(columns, CHUNK_LOGITS))
    return int(chunk * (planned.element_bytes + 2 * FP32_BYTES) + tokens * config.hidden_size * planned.element_bytes)


def _packed_bytes(planned: Planned) -> int:
    """Two copies of every frozen linear that is not quantised (`kernels/frozen_linear.py`), at most."""
    dtype = packed_dtype(torch.empty(0, dtype=DTYPES[planned.recipe.training.precision]))
    frozen = (
        module.weight.numel()
        for path, module in base_of(planned.model).named_modules()
        if type(module) is nn.Linear and not module.weight.requires_grad
        if path.removesuffix(".base_layer") not in planned.quantised
    )
    return 2 * sum(frozen) * dtype.itemsize if dtype is not None else 0
