"""Recipes for tests of preparing: only the sections that preparing reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cairn.config.data import Data
from cairn.config.recipe import Choice, Model, Recipe


def data_recipe(model: Path, train: Path | list[Path], *, stage: str = "pretrain", **data: Any) -> Recipe:
    """A recipe with `data.train` and further keys of the data section."""
    files = train if isinstance(train, list) else [train]
    values = {"train": [str(path) for path in files], "sequence_length": 64, **data}
    return Recipe.model_construct(
        model=Model.parse({"path": str(model)}),
        data=Data.parse(values),
        stage=Choice.model_construct(name=stage, config=None),
    )
