"""Exports open with their own libraries, answer as base + adapter, and leave nothing when they fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cairn.adapters.files import save_peft
from cairn.errors import AdapterError, CairnError, UserError
from cairn.models.identity import base_sha256
from cairn.models.load import load_model, load_tokenizer
from cairn.plugins import EXPORTS, METHODS
from cairn.store.card import Base, Facts
from cairn.store.store import Adapter, Store

pytestmark = pytest.mark.slow

TOKENS = torch.arange(40).view(1, -1)


@pytest.fixture(scope="module")
def trained(tiny_path: Path) -> Any:
    """Base + LoRA with weights that change every answer."""
    method = METHODS.load("lora")
    model = method(method.Config(rank=4)).attach(load_model(tiny_path, precision="fp32"))
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.2)
    return model.eval()


@pytest.fixture
def adapter(trained: Any, tiny_path: Path, tmp_path: Path) -> Adapter:
    """The same, published."""
    folder = tmp_path / "run"
    save_peft(trained, folder)
    load_tokenizer(tiny_path).save_pretrained(folder)
    facts = Facts(base=Base(path=str(tiny_path), sha256=base_sha256(tiny_path)), method="lora", rank=4)
    return Store(tmp_path / "adapters").publish("n", folder, facts)


def logits(model: Any) -> torch.Tensor:
    """fp32 [40, vocabulary]."""
    with torch.inference_mode():
        return model(input_ids=TOKENS).logits[0].float()


def close(found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> bool:
    """Largest difference relative to the largest logit."""
    return bool((found - expected).abs().max() <= tolerance * expected.abs().max())


def test_peft_opens_with_peft_and_answers_the_same(
    adapter: Adapter, trained: Any, tiny_path: Path, tmp_path: Path
) -> None:
    from peft import PeftConfig, PeftModel

    target = tmp_path / "out"
    assert EXPORTS.load("peft")().export(adapter, target) == target
    assert PeftConfig.from_pretrained(str(target)).base_model_name_or_path == str(tiny_path)
    opened = PeftModel.from_pretrained(load_model(tiny_path, precision="fp32"), str(target)).eval()
    assert torch.equal(logits(opened), logits(trained))
    assert not close(logits(trained), logits(load_model(tiny_path, precision="fp32")), 1e-2), (
        "the adapter does something"
    )


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("bf16", 5e-2)])
def test_safetensors_is_a_whole_model_that_answers_as_base_and_adapter(
    adapter: Adapter, trained: Any, precision: str, tolerance: float, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    export = EXPORTS.load("safetensors")
    target = tmp_path / "merged"
    export(export.Config(precision=precision)).export(adapter, target)
    opened = AutoModelForCausalLM.from_pretrained(target, dtype="auto").eval()
    assert opened.dtype == {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    assert close(logits(opened), logits(trained), tolerance)
    assert AutoTokenizer.from_pretrained(target).chat_template
    assert not list(target.glob("adapter_*"))


def test_a_whole_model_is_exported_as_it_is(tiny_path: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "adapters")
    published = store.publish("full", tiny_path, Facts(base=Base(path=str(tiny_path)), method="full"))
    target = EXPORTS.load("safetensors")().export(published, tmp_path / "out")
    assert torch.equal(logits(load_model(target, precision="fp32")), logits(load_model(tiny_path, precision="fp32")))
    with pytest.raises(AdapterError, match="--to safetensors"):
        EXPORTS.load("peft")().export(published, tmp_path / "peft")
    assert not (tmp_path / "peft").exists()


def test_what_acts_on_a_part_of_a_text_is_not_merged(adapter: Adapter, tiny_path: Path, tmp_path: Path) -> None:
    method = METHODS.load("alora")
    waiting = method(method.Config(rank=4, invocation=(65,)))
    waiting.save(waiting.attach(load_model(tiny_path, precision="fp32")), tmp_path / "waiting")
    facts = Facts(base=adapter.card.base, method="alora", rank=4)
    published = Store(tmp_path / "adapters").publish("waiting", tmp_path / "waiting", facts)
    with pytest.raises(AdapterError, match="cannot be merged: it acts on a part"):
        EXPORTS.load("safetensors")().export(published, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["peft", "safetensors"])
def test_an_occupied_target_is_left_alone(kind: str, adapter: Adapter, tmp_path: Path) -> None:
    target = tmp_path / "occupied"
    target.mkdir()
    (target / "mine").write_text("x")
    with pytest.raises(UserError, match="something already"):
        EXPORTS.load(kind)().export(adapter, target)
    assert [path.name for path in target.iterdir()] == ["mine"]


@pytest.mark.parametrize("kind", ["peft", "safetensors"])
def test_another_base_model_is_refused(kind: str, adapter: Adapter, tmp_path: Path) -> None:
    other = adapter.card.model_copy(update={"base": Base(path=adapter.card.base.path, sha256="0" * 64)})
    with pytest.raises(AdapterError, match="other weights"):
        EXPORTS.load(kind)().export(Adapter(adapter.reference, adapter.path, other), tmp_path / "out")
    missing = adapter.card.model_copy(update={"base": Base(path=str(tmp_path / "gone"), sha256="0" * 64)})
    with pytest.raises(UserError, match="needs its base model"):
        EXPORTS.load(kind)().export(Adapter(adapter.reference, adapter.path, missing), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out.*"))


@pytest.mark.parametrize("kind", ["peft", "safetensors"])
def test_an_export_that_answers_otherwise_is_removed(
    kind: str, adapter: Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = EXPORTS.load(kind).__module__
    probe = __import__(module, fromlist=["probe"]).probe
    answers = iter((0.0, 1.0))
    monkeypatch.setattr(f"{module}.probe", lambda model: probe(model) + next(answers))
    with pytest.raises(CairnError, match="logits differ"):
        EXPORTS.load(kind)().export(adapter, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out.*"))
