"""The fused LoRA layer is PEFT's, with its gradients; what it cannot do, PEFT's own code does."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tests.tiny import build_model

from cairn.adapters import fused_lora
from cairn.adapters.fused_lora import FusedLora, use_fused_lora
from cairn.models.kernels import frozen_linear
from cairn.models.kernels.frozen_linear import use_frozen_linears
from cairn.models.kernels.measure import Pays

pytestmark = pytest.mark.slow
TOKENS = torch.arange(24).reshape(2, 12) * 11 % 256


def adapted(dtype: torch.dtype, **options: Any) -> Any:
    """A tiny model with an adapter that changes something."""
    torch.manual_seed(0)
    config = LoraConfig(r=4, lora_alpha=12, target_modules="all-linear", task_type="CAUSAL_LM", **options)
    model = get_peft_model(build_model().to(dtype), config, autocast_adapter_dtype=False)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    return model


def run(model: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Logits, and the gradients of A and B."""
    torch.manual_seed(1)
    logits = model(input_ids=TOKENS).logits
    logits.float().square().mean().backward()
    return logits.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("packed", [True, False])
def test_equal_to_pefts(packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = adapted(torch.float32)
    fused = copy.deepcopy(plain)
    assert use_fused_lora(fused) == 14
    if packed:
        monkeypatch.setattr(frozen_linear, "measure_pays", lambda *given, **named: Pays(True, True, True))
        assert use_frozen_linears(fused, training=True) == 15
    (wanted, theirs), (found, mine) = run(plain), run(fused)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert mine.keys() == theirs.keys()
    for name, gradient in theirs.items():
        assert torch.linalg.norm(mine[name] - gradient) <= 1e-5 * torch.linalg.norm(gradient), name


def test_in_bf16_as_near_to_the_truth_as_pefts() -> None:
    plain = adapted(torch.bfloat16)
    fused, truth = copy.deepcopy(plain), copy.deepcopy(plain).float()
    use_fused_lora(fused)
    (wanted, exact), (_, theirs), (found, mine) = run(truth), run(plain), run(fused)
    assert torch.linalg.norm(found.float() - wanted) <= 2e-2 * torch.linalg.norm(wanted)
    assert {gradient.dtype for gradient in mine.values()} == {torch.bfloat16}
    errors = [
        sum(float((part[name].float() - exact[name]).square().sum()) for name in exact) for part in (mine, theirs)
    ]
    assert errors[0] <= 1.2 * errors[1]


def test_it_is_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    model = adapted(torch.float32)
    use_fused_lora(model)
    monkeypatch.setattr(fused_lora.layer.Linear, "forward", lambda *given, **named: pytest.fail("PEFT's own ran"))
    run(model)


@pytest.mark.parametrize("options", [{"lora_dropout": 0.5}, {"use_dora": True}, {"lora_bias": True}])
def test_what_is_no_plain_lora_is_pefts(options: dict[str, Any]) -> None:
    plain = adapted(torch.float32, **options).train()
    fused = copy.deepcopy(plain)
    use_fused_lora(fused)
    (wanted, theirs), (found, mine) = run(plain), run(fused)
    assert torch.equal(found, wanted)
    assert all(torch.equal(mine[name], gradient) for name, gradient in theirs.items())


def test_switched_off_merged_and_copied() -> None:
    model = adapted(torch.float32)
    use_fused_lora(model)
    with torch.no_grad():
        own = model(input_ids=TOKENS).logits
        with model.disable_adapter():
            base = model(input_ids=TOKENS).logits
        model.merge_adapter()
        merged = model(input_ids=TOKENS).logits
        model.unmerge_adapter()
        twin = copy.deepcopy(model)
    torch.testing.assert_close(base, build_model()(input_ids=TOKENS).logits)
    torch.testing.assert_close(merged, own, rtol=1e-4, atol=1e-4)
    assert any(isinstance(module, FusedLora) for module in twin.modules())
    torch.testing.assert_close(twin(input_ids=TOKENS).logits, own, rtol=1e-4, atol=1e-4)
