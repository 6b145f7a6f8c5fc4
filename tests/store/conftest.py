"""What store tests publish."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cairn.store.card import Base, Facts


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder such as a run leaves."""
    folder = tmp_path / "source"
    (folder / "sub").mkdir(parents=True)
    (folder / "adapter_model.safetensors").write_bytes(os.urandom(150_000))
    (folder / "sub" / "tokenizer.json").write_text("{}")
    return folder


@pytest.fixture
def facts() -> Facts:
    """The least a publisher states."""
    return Facts(base=Base(path="base"), method="lora", stage="sft", rank=8, targets=("q_proj",))
