"""Adapters of every method taken in from elsewhere: sound ones are verified, those of another base are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.tiny import build_model, save_tiny

from cairn.adapters.peft_config import CONFIG_FILE
from cairn.adapters.proof import small_values
from cairn.errors import AdapterError
from cairn.plugins import METHODS
from cairn.store.importing import import_adapter
from cairn.store.store import Store
from cairn.store.verify import verify

pytestmark = pytest.mark.slow

WEIGHTS = "adapter_model.safetensors"
DAILY = ("oft", "ia3", "vera", "shira")
OFFERED = [n for n in METHODS.names() if not METHODS.load(n).refused and not METHODS.load(n).makes_whole_model]


def made(name: str, folder: Path) -> Path:
    kind = METHODS.load(name)
    method = kind(kind.Config.parse(small_values(name)))
    torch.manual_seed(1)
    method.save(method.attach(build_model()), folder)
    return folder


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in DAILY else pytest.mark.full) for n in OFFERED])
def test_one_of_any_method_comes_in_and_is_verified(name: str, tmp_path: Path, tiny_path: Path) -> None:
    folder = made(name, tmp_path / "made")
    adapter = import_adapter(Store(tmp_path / "adapters"), str(folder), "bought", base=str(tiny_path))
    assert adapter.card.method == (METHODS.load(name).saved_as or name)
    checks = {check.name: check for check in verify(adapter)}
    assert all(check.ok for check in checks.values()), checks
    assert checks["shapes"].reason
    assert set(adapter.card.files) == {WEIGHTS, CONFIG_FILE}


@pytest.mark.parametrize("name", ["oft", "shira"])
def test_one_of_another_base_is_refused(name: str, tmp_path: Path) -> None:
    folder = made(name, tmp_path / "made")
    narrow = save_tiny(tmp_path / "narrow", hidden_size=32, intermediate_size=64)
    store = Store(tmp_path / "adapters")
    with pytest.raises(AdapterError, match="the adapter is refused"):
        import_adapter(store, str(folder), "bought", base=str(narrow))
    assert store.names() == []


def test_a_tensor_that_was_changed_is_found(tmp_path: Path, tiny_path: Path) -> None:
    adapter = import_adapter(
        Store(tmp_path / "adapters"), str(made("oft", tmp_path / "made")), "bought", base=str(tiny_path)
    )
    path = adapter.path / WEIGHTS
    tensors = load_file(path)
    first = next(iter(tensors))
    path.unlink()
    save_file({**tensors, first: tensors[first][:, :-1].contiguous()}, path)
    failed = {check.name: check.reason for check in verify(adapter) if check.ok is False}
    assert set(failed) == {"sha256", "shapes"}
    assert first in failed["shapes"]
