"""What an adapter reference may be, and that what is loaded is what was trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiny import build_model, build_tokenizer

from cairn.errors import AdapterError
from cairn.evaluation.subject import Subject, locate_adapter
from cairn.generation.scoring import score
from cairn.store.card import Facts
from cairn.store.store import Store

pytestmark = pytest.mark.unit

WINDOWS = [([256, 5, 6, 7], [5, 6, 7, 8]), ([256, 9], [9, 10])]


@pytest.fixture(scope="module")
def lora(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A random LoRA over the tiny model: its folder and the live model."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(3)
    config = LoraConfig(
        r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"], init_lora_weights=False, task_type="CAUSAL_LM"
    )
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(tiny_path), config).eval()
    folder = tmp_path_factory.mktemp("lora")
    model.save_pretrained(folder)
    return folder, model


def test_an_adapter_is_scored_as_it_was_trained(tiny_path: Path, lora: tuple[Path, Any]) -> None:
    folder, live = lora
    subject = Subject(str(tiny_path), str(folder))
    found = score(subject.load(), WINDOWS)
    for mine, theirs in zip(found, score(live, WINDOWS), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-5)
    base = score(Subject(str(tiny_path)).load(), WINDOWS)
    assert base[0] != pytest.approx(found[0], rel=1e-3)


def test_a_whole_model_stands_in_for_the_base(tiny_path: Path, tmp_path: Path) -> None:
    other = build_model(seed=7)
    other.save_pretrained(tmp_path)
    subject = Subject(str(tiny_path), str(tmp_path))
    assert subject.is_whole_model
    assert score(subject.load(), WINDOWS)[0] == pytest.approx(score(other, WINDOWS)[0], rel=1e-5)
    assert subject.load_tokenizer().bos_token_id == build_tokenizer().bos_token_id


def test_references(tmp_path: Path, lora: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    storage, folder = tmp_path / "storage", lora[0]
    store = Store(storage / "adapters")
    facts = Facts(base={"path": "tiny"}, method="lora")
    first, second = (store.publish("support", folder, facts).path for _ in range(2))
    store.promote("support", 1, "prod")
    assert locate_adapter("support", storage=storage) == second
    assert locate_adapter("support@1", storage=storage) == first
    assert locate_adapter("support@prod", storage=storage) == first
    assert locate_adapter(str(folder), storage=storage) == folder
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "adapter").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    assert locate_adapter("run", storage=storage) == tmp_path / "run" / "adapter"


def test_the_base_that_an_adapter_was_trained_on(tiny_path: Path, tmp_path: Path) -> None:
    subject = Subject(str(tiny_path), str(tmp_path))
    assert Subject(str(tiny_path)).trained_on() is None
    assert subject.trained_on() is None
    (tmp_path / "run.json").write_text('{"base": {"path": "m", "sha256": "abc"}}')
    assert subject.trained_on() == "abc"
    (tmp_path / "card.json").write_text('{"base": {"path": "m", "sha256": ""}}')
    assert subject.trained_on() is None
    (tmp_path / "card.json").write_text("[]")
    with pytest.raises(AdapterError, match="note of its origin"):
        subject.trained_on()


def test_references_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(AdapterError, match="neither an adapter nor a model"):
        locate_adapter(str(tmp_path / "empty"), storage=tmp_path)
    with pytest.raises(AdapterError, match="no such folder"):
        locate_adapter(str(tmp_path / "missing"), storage=tmp_path)
    with pytest.raises(AdapterError, match="there is no adapter 'suport'"):
        locate_adapter("suport", storage=tmp_path)
