"""Adapter directories bent at random: each is taken in sound or refused in words, and a refusal leaves the store alone."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.generation.lora import save_lora
from tests.tiny import build_model

from cairn.errors import UserError
from cairn.plugins import METHODS
from cairn.store.importing import import_adapter
from cairn.store.store import Store
from cairn.store.verify import verify

pytestmark = pytest.mark.unit

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
STRANGE: tuple[Any, ...] = (
    None, True, -1, 0, 3, 1e308, float("nan"), "", "x" * 300, "../../etc/passwd", [], ["(a+)+$"], {}, {"q_proj": -1},
    {"(a+)+$": 4}, [[[]]], {"a": {"b": []}}, "os.system", 2**70,
)  # fmt: skip


def bend_config(folder: Path, draw: random.Random) -> None:
    """Other values under its own keys, and keys that PEFT acts on."""
    config = json.loads((folder / CONFIG).read_text())
    keys = [*config, "megatron_config", "auto_mapping", "shadow_model", "loftq_config", "use_dora", "corda_config"]
    for key in draw.sample(keys, draw.randint(1, 4)):
        config[key] = draw.choice(STRANGE)
    (folder / CONFIG).write_text(json.dumps(config))


def flip(folder: Path, draw: random.Random) -> None:
    """A few bytes of either file; the head of the weights more often than their numbers."""
    path = folder / draw.choice((WEIGHTS, CONFIG))
    data = bytearray(path.read_bytes())
    end = len(data) if draw.random() < 0.3 else min(len(data), 400)
    for _ in range(draw.randint(1, 6)):
        data[draw.randrange(end)] = draw.randrange(256)
    path.write_bytes(data)


def cut(folder: Path, draw: random.Random) -> None:
    """The end is missing, or something stands behind it."""
    path = folder / draw.choice((WEIGHTS, CONFIG))
    data = path.read_bytes()
    path.write_bytes(data[: draw.randrange(len(data))] if draw.random() < 0.7 else data + draw.randbytes(40))


def swap(folder: Path, draw: random.Random) -> None:
    """Something else in the place of a file."""
    path = folder / draw.choice((WEIGHTS, CONFIG))
    path.unlink()
    other = draw.randrange(4)
    if other == 0:
        path.mkdir()
    elif other == 1:
        path.symlink_to("/etc/passwd")
    elif other == 2:
        path.write_bytes(b"")
    else:
        (folder / "adapter_model.bin").write_bytes(b"\x80\x04\x95")


BENDS: tuple[Callable[[Path, random.Random], None], ...] = (bend_config, flip, cut, swap)


@pytest.fixture(scope="module", params=["lora", "oft", "prompt_tuning"])
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / str(request.param)
    if request.param == "lora":
        return save_lora(folder, rank=2, seed=1, targets=["q_proj"])
    values = {"block_size": 16, "targets": ["q_proj"]} if request.param == "oft" else {"num_virtual_tokens": 4}
    kind = METHODS.load(request.param)
    method = kind(kind.Config.parse(values))
    method.save(method.attach(build_model()), folder)
    return folder


@pytest.mark.parametrize("bend", BENDS, ids=lambda bend: bend.__name__)
def test_whatever_comes_is_sound_or_refused(bend: Any, sound: Path, tiny_path: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "adapters")
    good = import_adapter(store, str(sound), "good", base=str(tiny_path))
    taken = refused = 0
    for seed in range(40):
        folder = tmp_path / "bent"
        shutil.copytree(sound, folder)
        bend(folder, random.Random(seed))
        before = store.names(), len(store.versions("bent"))
        try:
            adapter = import_adapter(store, str(folder), "bent", base=str(tiny_path))
        except UserError:
            assert (store.names(), len(store.versions("bent"))) == before
            refused += 1
        else:
            failed = [check for check in verify(adapter) if check.ok is False]
            assert not failed, (seed, failed)
            taken += 1
        shutil.rmtree(folder)
    assert refused > 5, (taken, refused)
    assert all(check.ok for check in verify(good))
    assert list((tmp_path / "adapters" / ".staging").iterdir()) == []
