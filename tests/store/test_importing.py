"""Adapters made elsewhere: taken in when they fit, byte by byte, and given out again as PEFT opens them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.generation.lora import peft_model, save_lora
from tests.tiny import build_model, build_tokenizer, save_tiny

from cairn.errors import AdapterError, ModelError
from cairn.models.identity import base_sha256, tokenizer_sha256
from cairn.plugins import EXPORTS
from cairn.store.importing import import_adapter
from cairn.store.store import Store
from cairn.store.verify import verify

pytestmark = pytest.mark.unit

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "adapters")


def name_base(folder: Path, base: str) -> Path:
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps({**config, "base_model_name_or_path": base}))
    return folder


@torch.no_grad()
def logits(model: Any) -> torch.Tensor:
    found: torch.Tensor = model(torch.arange(20).reshape(2, 10)).logits
    return found


def test_a_peft_directory_comes_in_and_goes_out_unchanged(store: Store, tmp_path: Path, tiny_path: Path) -> None:
    patterns = {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"v_proj": 3}, "use_rslora": True}
    folder = save_lora(tmp_path / "made", rank=4, seed=1, **patterns)
    adapter = import_adapter(store, str(folder), "bought", base=str(tiny_path))
    card = adapter.card
    assert (card.base.path, card.base.sha256) == (str(tiny_path), base_sha256(tiny_path))
    assert (card.method, card.rank, card.operation) == ("lora", 4, f"add {folder}")
    assert set(card.files) == {WEIGHTS, CONFIG}, "what is not the adapter's stays outside"
    assert all(check.ok for check in verify(adapter))
    out = EXPORTS.load("peft")().export(adapter, tmp_path / "out")
    assert (out / WEIGHTS).read_bytes() == (folder / WEIGHTS).read_bytes()
    torch.testing.assert_close(logits(peft_model(out)), logits(peft_model(folder)), rtol=0, atol=0)


def test_its_own_tokenizer_comes_along(store: Store, tmp_path: Path, tiny_path: Path) -> None:
    folder = save_lora(tmp_path / "made", rank=4, seed=1)
    tokenizer = build_tokenizer(chat_template="{{ messages }}")
    tokenizer.save_pretrained(folder)
    card = import_adapter(store, str(folder), "bought", base=str(tiny_path)).card
    assert card.tokenizer_sha256 == tokenizer_sha256(tokenizer)
    assert "chat_template.jinja" in card.files


def test_the_base_is_the_folder_that_the_config_names(store: Store, tmp_path: Path, tiny_path: Path) -> None:
    folder = name_base(save_lora(tmp_path / "made", rank=4, seed=1), str(tiny_path))
    assert import_adapter(store, str(folder), "bought").card.base.path == str(tiny_path)


@pytest.mark.parametrize("named", ["meta-llama/Llama-3.1-8B", "../nowhere", ""])
def test_a_name_in_a_config_makes_nothing_be_downloaded(
    named: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cairn.models.locate.from_hub", lambda *_, **__: pytest.fail("went online"))
    folder = name_base(save_lora(tmp_path / "made", rank=4, seed=1), named)
    with pytest.raises(AdapterError, match=r"(?s)no folder here.*--base"):
        import_adapter(store, str(folder), "bought")


def test_one_of_another_base_is_refused_and_nothing_is_left(store: Store, tmp_path: Path) -> None:
    folder = save_lora(tmp_path / "made", rank=4, seed=1)
    other = save_tiny(tmp_path / "other", hidden_size=32)
    with pytest.raises(AdapterError, match="maps 64 → 64 features, the base's maps 32 → 32"):
        import_adapter(store, str(folder), "bought", base=str(other))
    assert store.names() == []


def test_links_out_of_the_folder_and_other_kinds_are_refused(store: Store, tmp_path: Path, tiny_path: Path) -> None:
    folder = save_lora(tmp_path / "made", rank=4, seed=1)
    (folder / WEIGHTS).rename(tmp_path / WEIGHTS)
    (folder / WEIGHTS).symlink_to(tmp_path / WEIGHTS)
    with pytest.raises(AdapterError, match="leads out of the directory"):
        import_adapter(store, str(folder), "bought", base=str(tiny_path))
    for source in (str(tmp_path / "missing"), "./missing"):
        with pytest.raises(AdapterError, match="no such folder"):
            import_adapter(store, source, "bought", base=str(tiny_path))


def test_a_hub_adapter_is_fetched_by_its_files_alone(
    store: Store, tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub is a folder with links into a cache, as `snapshot_download` leaves it."""
    blobs, snapshot = save_lora(tmp_path / "blobs", rank=4, seed=1), tmp_path / "snapshot"
    snapshot.mkdir()
    for name in (WEIGHTS, CONFIG):
        (snapshot / name).symlink_to(blobs / name)
    asked: dict[str, Any] = {}

    def download(name: str, **settings: Any) -> str:
        asked.update(settings, name=name)
        return str(snapshot)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    adapter = import_adapter(store, "someone/adapter", "bought", base=str(tiny_path), revision="v2")
    assert (asked["name"], asked["revision"]) == ("someone/adapter", "v2")
    assert {WEIGHTS, CONFIG} <= set(asked["allow_patterns"])
    assert not [pattern for pattern in asked["allow_patterns"] if "*" in pattern or pattern.endswith(".bin")]
    assert adapter.card.operation == "add someone/adapter at v2"
    assert (adapter.path / WEIGHTS).read_bytes() == (blobs / WEIGHTS).read_bytes()


def test_without_the_hub_it_is_said(store: Store, tiny_path: Path) -> None:
    with pytest.raises(ModelError, match=r"(?s)hub cannot be reached.*give its folder"):
        import_adapter(store, "someone/adapter", "bought", base=str(tiny_path))


def test_the_answer_changes_with_what_was_taken_in(store: Store, tmp_path: Path, tiny_path: Path) -> None:
    folder = save_lora(tmp_path / "made", rank=4, seed=1)
    adapter = import_adapter(store, str(folder), "bought", base=str(tiny_path))
    assert not torch.allclose(logits(peft_model(adapter.path)), logits(build_model()), atol=1e-2)
