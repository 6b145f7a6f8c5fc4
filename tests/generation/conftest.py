"""Adapters of different ranks, targets and scalings, shared by the tests of generation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.generation.lora import save_lora
from tests.tiny import build_model, build_tokenizer

ADAPTERS: dict[str, dict[str, Any]] = {
    "small": {"rank": 4, "seed": 1},
    "large": {"rank": 16, "seed": 2},
    "attention": {"rank": 8, "seed": 3, "targets": ["q_proj", "v_proj"]},
    "rslora": {"rank": 8, "seed": 4, "use_rslora": True},
}


@pytest.fixture(scope="session")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """name → PEFT directory."""
    root = tmp_path_factory.mktemp("adapters")
    return {name: save_lora(root / name, **settings) for name, settings in ADAPTERS.items()}


@pytest.fixture
def make_generator(adapters: dict[str, Path]) -> Any:
    """A factory of Generators over the tiny model with all adapters loaded."""
    from cairn.adapters.files import read_lora
    from cairn.generation.generator import Generator

    def make(*, load: tuple[str, ...] = tuple(ADAPTERS), **settings: Any) -> Any:
        generator = Generator(build_model(), build_tokenizer(), **settings)
        for name in load:
            generator.load(name, read_lora(adapters[name]))
        return generator

    return make
