"""Adapters in memory: switching, weights and stacks against PEFT, and merges that leave no trace in the base."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.adapters.updates import SHAPES, lora
from tests.generation.lora import save_lora
from tests.models.families import build_family
from tests.tiny import build_model

from cairn.adapters.adapted import Adapted
from cairn.adapters.attach import attach_saved
from cairn.adapters.files import read_lora, save_peft
from cairn.adapters.merge import merge, restore
from cairn.adapters.methods.lora import Lora
from cairn.adapters.plain import plain_lora
from cairn.errors import AdapterError

pytestmark = pytest.mark.unit

TOKENS = torch.arange(20).reshape(2, 10)
Q = next(iter(SHAPES))
TARGETS = {"a": ["q_proj", "v_proj", "down_proj"], "b": ["q_proj", "up_proj"]}


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    """Two adapters of unequal rank, strength and places."""
    return {
        "a": save_lora(tmp_path / "a", rank=4, seed=1, targets=TARGETS["a"]),
        "b": save_lora(tmp_path / "b", rank=6, seed=2, targets=TARGETS["b"], use_rslora=True),
    }


@pytest.fixture
def adapted(folders: dict[str, Path]) -> Adapted:
    both = Adapted(build_model())
    for name, folder in folders.items():
        both.add(name, folder)
    return both


@torch.no_grad()
def logits(model: Any) -> torch.Tensor:
    found: torch.Tensor = model(input_ids=TOKENS).logits
    return found


def base_sha256(model: Any) -> str:
    """Over every byte of every parameter."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        digest.update(name.encode())
        digest.update(parameter.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def test_a_stack_answers_as_several_active_adapters_of_peft(adapted: Adapted, folders: dict[str, Path]) -> None:
    from peft import PeftModel

    theirs = PeftModel.from_pretrained(build_model(), folders["a"], adapter_name="a")
    theirs.load_adapter(folders["b"], "b")
    theirs.base_model.set_adapter(["a", "b"])
    expected = logits(theirs.eval())
    adapted.activate("a", "b")
    torch.testing.assert_close(logits(adapted.model), expected, rtol=1e-5, atol=1e-5)
    assert adapted.stack(["a", "b"], name="both").total < 1e-6
    adapted.activate("both")
    torch.testing.assert_close(logits(adapted.model), expected, rtol=1e-5, atol=1e-5)


def test_one_at_a_time_is_what_peft_gives_and_none_is_the_base(adapted: Adapted, folders: dict[str, Path]) -> None:
    base = logits(build_model())
    for name, folder in folders.items():
        adapted.activate(name)
        expected = logits(attach_saved(build_model(), folder))
        torch.testing.assert_close(logits(adapted.model), expected, rtol=1e-5, atol=1e-5)
    adapted.activate()
    assert torch.equal(logits(adapted.model), base)


def test_weights_weigh_and_cancel(adapted: Adapted) -> None:
    adapted.add("a again", adapted.adapters["a"])
    adapted.activate("b", weights=(0.5,))
    half = logits(adapted.model)
    adapted.activate("b", "a", "a again", weights=(0.5, 1.0, -1.0))
    torch.testing.assert_close(logits(adapted.model), half, rtol=1e-4, atol=1e-4)
    assert adapted.active == {"b": 0.5, "a": 1.0, "a again": -1.0}


@pytest.mark.parametrize("how", ["svd", "ties", "dare", "magnitude_prune"])
def test_other_ways_are_registered_with_their_error(how: str, adapted: Adapted) -> None:
    error = adapted.combine({"a": 0.7, "b": 0.3}, name="mixed", how=how, rank=3)
    assert 0.01 < error.total < 2
    adapted.activate("mixed")
    assert not torch.allclose(logits(adapted.model), logits(build_model()), atol=1e-2)


def test_merged_answers_the_same_and_unmerged_is_the_base_again(adapted: Adapted) -> None:
    before = base_sha256(adapted.model)
    adapted.activate("a", "b", weights=(0.7, 0.3))
    beside = logits(adapted.model)
    adapted.merge()
    torch.testing.assert_close(logits(adapted.model), beside, rtol=1e-4, atol=1e-4)
    for attempt in (lambda: adapted.activate("a"), adapted.merge):
        with pytest.raises(AdapterError, match=r"(?s)a \+ b is merged.*unmerge"):
            attempt()
    adapted.unmerge()
    assert base_sha256(adapted.model) == before
    assert torch.equal(logits(adapted.model), beside)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_hundred_merges_in_bf16_leave_the_base_as_it_was(family: str, tmp_path: Path) -> None:
    model = Lora(Lora.Config.parse({"rank": 8, "alpha": 32})).attach(build_family(family))
    generator = torch.Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data = 0.3 * torch.randn(parameter.shape, generator=generator)
    save_peft(model, tmp_path)
    weights, base = read_lora(tmp_path), build_family(family).to(torch.bfloat16)
    before = base_sha256(base)
    adapted = Adapted(base)
    adapted.add("it", weights)
    adapted.activate("it")
    for _ in range(100):
        adapted.merge()
        assert base_sha256(base) != before
        adapted.unmerge()
    for _ in range(100):
        restore(base, merge(base, weights))
    assert base_sha256(base) == before


def test_mistakes_are_named_and_change_nothing(adapted: Adapted) -> None:
    adapted.activate("a")
    expected = logits(adapted.model)
    narrow = plain_lora({Q: (torch.randn(2, 32), torch.randn(64, 2))})
    for attempt, reason in (
        (lambda: adapted.activate("c"), "there is no adapter 'c'"),
        (lambda: adapted.activate("a", "b", weights=(1.0,)), "2 adapters and 1 weights"),
        (lambda: adapted.delete("a"), "'a' is active"),
        (lambda: adapted.add("b", adapted.adapters["a"]), "the name is taken"),
        (lambda: adapted.activate("a", "a"), "named twice"),
        (lambda: adapted.add("c", narrow), "maps 32 → 64 features, the base's maps 64 → 64"),
        (lambda: adapted.add("c", lora(1, {Q: 2}, head=True)), "scores and does not speak"),
        (adapted.unmerge, "nothing is merged"),
    ):
        with pytest.raises(AdapterError, match=reason):
            attempt()
    assert torch.equal(logits(adapted.model), expected)
    adapted.activate()
    with pytest.raises(AdapterError, match="nothing is active"):
        adapted.merge()
    adapted.delete("a")
    assert list(adapted.adapters) == ["b"]
