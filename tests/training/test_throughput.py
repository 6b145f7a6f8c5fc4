"""Operations counted by the formulas equal those that torch counts in a real step; the peak is the named device's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiny import build_model
from tests.training.runs import recipe_for, run_local
from torch.utils.flop_counter import FlopCounterMode

from cairn.adapters.methods.lora import Lora
from cairn.training.callbacks.throughput import _squares
from cairn.training.flops import peak_of, work_of


def counted(model: Any, tokens: torch.Tensor) -> int:
    """What torch counts, forwards and backwards, with logits everywhere."""
    with FlopCounterMode(display=False) as counter:
        model(input_ids=tokens).logits.sum().backward()
    return counter.get_total_flops()


@pytest.mark.unit
@pytest.mark.parametrize("method", ["full", "lora"])
def test_the_formula_is_what_torch_counts(method: str) -> None:
    """Up to what nobody asks for: the gradient with respect to the first layer's input, which has none in LoRA."""
    torch.manual_seed(0)
    model = build_model(hidden_size=64, layers=4, tie_word_embeddings=False, attn_implementation="eager").train()
    if method == "lora":
        model = Lora(Lora.Config(rank=4)).attach(model)
    rows, length = 2, 32
    found = counted(model, torch.randint(0, 256, (rows, length)))
    work = work_of(model)
    assert work is not None
    total = work.of_step(rows * length, rows * length, rows * length**2, reference=False)
    missing = 0
    if method == "lora":
        layer = model.get_base_model().model.layers[0]
        first = [layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj]
        sizes = [m.base_layer.weight.numel() + m.lora_A["default"].weight.numel() for m in first]
        missing = 2 * rows * length * sum(sizes)
    assert total - missing == pytest.approx(found, rel=1e-3)
    forward = work.of_step(1, 1, 1, reference=True) - work.of_step(1, 1, 1, reference=False)
    assert forward == 2 * (work.frozen + work.head) + 4 * work.width


@pytest.mark.unit
def test_segments_see_themselves_only() -> None:
    segments = torch.tensor([[1, 1, 1, 2, 2, 0], [1, 2, 2, 2, 2, 2]])
    assert _squares(segments) == 9 + 4 + 1 + 25
    assert _squares(segments[:0]) == 0


@pytest.mark.unit
def test_the_peak_is_that_of_the_named_device(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"NVIDIA H100 PCIe": 756e12, "NVIDIA H100 80GB HBM3": 989e12, "NVIDIA A100-SXM4-80GB": 312e12, "Odd": None}
    for name, peak in names.items():
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device, name=name: name)
        assert peak_of(torch.device("cuda"), "bf16") == peak
    assert peak_of(torch.device("cpu"), "fp32") is None


@pytest.mark.slow
@pytest.mark.usefixtures("group")
def test_a_run_says_what_it_uses_when_it_logs(tmp_path: Path, tiny_path: Path) -> None:
    recipe = recipe_for(tmp_path, tiny_path, training={"steps": 6, "log_every": 2})
    lines = run_local(recipe)
    assert [line["step"] for line in lines if "flops_per_second" in line] == [2, 4, 6]
    for line in lines:
        assert line["flops_per_second"] * line["step_seconds"] > 4 * 50_000 * line["tokens"]
        assert "mfu" not in line
