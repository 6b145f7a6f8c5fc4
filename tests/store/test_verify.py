"""A version is checked against its card and its base; every fault is found by the check that is for it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.store.published import publish_lora
from tests.tiny import save_tiny

from cairn.store.card import Base, Facts
from cairn.store.store import Adapter, Store
from cairn.store.verify import verify

pytestmark = pytest.mark.unit

WEIGHTS = "adapter_model.safetensors"
CHECKS = ["card", "files", "sha256", "config", "dtype", "finite", "base", "shapes", "tokenizer"]


@pytest.fixture
def adapter(tmp_path: Path, tiny_path: Path) -> Adapter:
    return publish_lora(Store(tmp_path / "adapters"), "support", tiny_path, tmp_path / "made")


def answers(adapter: Adapter) -> dict[str, bool | None]:
    return {check.name: check.ok for check in verify(adapter)}


def test_a_sound_version_passes_everything(adapter: Adapter) -> None:
    checks = {check.name: check for check in verify(adapter)}
    assert list(checks) == CHECKS
    assert all(check.ok for check in checks.values()), checks
    assert checks["shapes"].reason == "14 modules, rank 4"
    assert checks["dtype"].reason == "28 tensors of F32"
    assert checks["tokenizer"].reason == "published with it"


def rewrite(adapter: Adapter, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    path = adapter.path / WEIGHTS
    tensors = load_file(path)
    change(tensors)
    path.unlink()
    save_file(tensors, path)


def poison(adapter: Adapter) -> None:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        next(iter(tensors.values()))[0, 0] = float("nan")

    rewrite(adapter, change)


def widen(adapter: Adapter) -> None:
    rewrite(adapter, lambda tensors: tensors.update({key: value.double() for key, value in tensors.items()}))


def reshape(adapter: Adapter) -> None:
    rewrite(
        adapter,
        lambda tensors: tensors.update({k: v[:, :-2].contiguous() for k, v in tensors.items() if "q_proj.lora_A" in k}),
    )


def speak_of_code(adapter: Adapter) -> None:
    path = adapter.path / "adapter_config.json"
    config = json.loads(path.read_text())
    path.unlink()
    path.write_text(json.dumps({**config, "megatron_config": {"x": 1}}))


def lose(adapter: Adapter) -> None:
    (adapter.path / "tokenizer.json").unlink()


def smuggle(adapter: Adapter) -> None:
    (adapter.path / "extra.bin").write_bytes(b"x")


def truncate(adapter: Adapter) -> None:
    path = adapter.path / WEIGHTS
    whole = path.read_bytes()
    path.unlink()
    path.write_bytes(whole[:-1])


@pytest.mark.parametrize(
    ("harm", "failed"),
    [
        (poison, {"sha256", "finite", "shapes"}),
        (widen, {"sha256", "dtype", "shapes"}),
        (reshape, {"sha256", "shapes"}),
        (speak_of_code, {"sha256", "config", "shapes"}),
        (lose, {"files", "tokenizer"}),
        (smuggle, {"files"}),
        (truncate, {"sha256", "dtype", "finite", "shapes"}),
    ],
)
def test_each_fault_is_found_by_its_checks(adapter: Adapter, harm: Callable[[Adapter], None], failed: set[str]) -> None:
    harm(adapter)
    found = {check.name: check for check in verify(adapter)}
    assert {name for name, check in found.items() if check.ok is False} == failed
    assert all(found[name].reason for name in failed)


def test_another_base_and_another_tokenizer_are_told(tmp_path: Path, tiny_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(tiny_path, base)
    store = Store(tmp_path / "adapters")
    adapter = publish_lora(store, "support", base, tmp_path / "made", tokenizer_sha256="0" * 64)
    shutil.rmtree(base)
    save_tiny(base, hidden_size=32)
    found = answers(adapter)
    assert [name for name, ok in found.items() if ok is False] == ["base", "shapes", "tokenizer"]
    shutil.rmtree(base)
    assert answers(adapter)["base"] is False


def test_what_does_not_arise_is_said_to(tmp_path: Path, tiny_path: Path) -> None:
    whole = Store(tmp_path).publish("full", tiny_path, Facts(base=Base(path=str(tiny_path)), method="full"))
    found = answers(whole)
    assert {name for name, ok in found.items() if ok is None} == {"config", "base", "shapes", "tokenizer"}
    assert not [name for name, ok in found.items() if ok is False]
