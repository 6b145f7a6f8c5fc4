"""Whether a prepacked product pays, for one shape on this machine, and the oneDNN calls themselves.

A verdict is measured once a machine and kept under the data home: two runs of one seed would otherwise differ in the
last bit whenever a busy machine made the measurement come out differently. Cost: some ten products a shape, once.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path

import torch
from torch.nn import functional as F

from cairn.config import home

FEW_ROWS = 64
"""Up to this many rows a product counts as decoding, above as scoring or training."""
MEASURED_ROWS = {"few_rows": 8, "many_rows": 256}
REPEATS = 7
MARGIN = 0.95
"""Packed must take less than this share of the plain product's time: it costs memory."""
VERDICT_FORMAT = 1


@dataclass(frozen=True)
class Pays:
    """Where the packed product is faster: with few rows, with many, with many forward and backward in training."""

    few_rows: bool
    many_rows: bool
    training: bool


def packed_dtype(weight: torch.Tensor) -> torch.dtype | None:
    """The dtype that `weight` is packed in; None where it cannot be (no oneDNN, another device or dtype)."""
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return None
    if weight.dtype == torch.float32:
        return torch.float32
    if weight.dtype != torch.bfloat16:
        return None
    return torch.bfloat16 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32


def reorder(weight: torch.Tensor) -> torch.Tensor:
    """`weight` [out, in] in oneDNN's own layout, an opaque tensor."""
    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.to(packed_dtype(weight)), None)
    return packed


def product(x: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """x · packedᵀ + bias in the dtype of `x`; [..., in] → [..., out]."""
    dtype = packed.dtype
    wide_bias = None if bias is None else bias.to(dtype)
    y: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x.to(dtype), packed, wide_bias, "none", [], "")
    return y.to(x.dtype)


@cache
def measure_pays(inputs: int, outputs: int, dtype: torch.dtype, *, training: bool) -> Pays:
    """The verdict for weights [outputs, inputs], from the data home or measured now and put there."""
    key = f"{VERDICT_FORMAT} {_machine()} {torch.__version__} {torch.get_num_threads()} {outputs}x{inputs} {dtype}"
    path = home.home() / "kernels" / f"{hashlib.sha256(f'{key} {training}'.encode()).hexdigest()[:20]}.json"
    if not path.is_file():
        measured = _measure(inputs, outputs, dtype, training=training)
        try:
            _keep(path, {"for": key, **asdict(measured)})
        except OSError:  # a data home that cannot be written costs a measurement in each process, not the run
            return measured
    kept = json.loads(path.read_text(encoding="utf-8"))
    return Pays(kept["few_rows"], kept["many_rows"], kept["training"])


@torch.inference_mode()
def _measure(inputs: int, outputs: int, dtype: torch.dtype, *, training: bool) -> Pays:
    weight = torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(0)).to(dtype)
    packed = reorder(weight)
    faster = {}
    for name, rows in MEASURED_ROWS.items():
        x = torch.ones(rows, inputs, dtype=dtype)
        faster[name] = _is_faster(partial(product, x, packed, None), partial(F.linear, x, weight))
    backward = training and faster["many_rows"]
    if backward:
        turned, gradient = (
            reorder(weight.t().contiguous()),
            torch.ones(MEASURED_ROWS["many_rows"], outputs, dtype=dtype),
        )
        backward = _is_faster(partial(product, gradient, turned, None), partial(torch.matmul, gradient, weight))
    return Pays(**faster, training=backward)


def _is_faster(packed: Callable[[], torch.Tensor], plain: Callable[[], torch.Tensor]) -> bool:
    """Whether the best of some packed calls beats the best of as many plain ones, taken in turn on a busy machine."""
    taken = [(_seconds(packed), _seconds(plain)) for _ in range(REPEATS)]
    packed_s, plain_s = (min(times) for times in zip(*taken, strict=True))
    return packed_s < MARGIN * plain_s


def _seconds(call: Callable[[], torch.Tensor]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _keep(path: Path, verdict: dict[str, object]) -> None:
    """Write once: of two processes that measured at the same time, the first one's verdict stands for both."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as draft:
        json.dump(verdict, draft)
    try:
        os.link(draft.name, path)
    except FileExistsError:
        return
    finally:
        os.unlink(draft.name)


def _machine() -> str:
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        lines = info.read_text(encoding="utf-8", errors="replace").splitlines()
        cpu = next((line for line in lines if line.startswith("model name")), cpu)
    return f"{cpu} {torch.backends.cpu.get_cpu_capability()}"
