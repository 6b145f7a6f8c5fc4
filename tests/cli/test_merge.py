"""The end of `cairn train` where the recipe asks for one model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.training.runs import recipe_for, run_local

from cairn.adapters.attach import attach_saved
from cairn.cli.train import merge
from cairn.config.load import with_overrides
from cairn.errors import RecipeError
from cairn.models.load import load_model
from cairn.training.folder import publish, result_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("group")]


def test_what_is_published_is_merged_once(tmp_path: Path, tiny_path: Path) -> None:
    recipe = recipe_for(tmp_path, tiny_path, training={"steps": 3}, storage={"publish": "toy", "merge": True})
    run_local(recipe)
    publish(recipe)
    result = result_of(recipe)
    merged = merge(recipe, result)
    assert merged == recipe.run_path / "merged"
    tokens = torch.arange(32).unsqueeze(0)
    expected = attach_saved(load_model(tiny_path, precision="fp32"), result.adapter_path)(tokens).logits
    assert torch.allclose(load_model(merged, precision="fp32")(tokens).logits, expected, atol=1e-4)
    written = (merged / "config.json").stat().st_mtime_ns
    assert merge(recipe, result) == merged
    assert (merged / "config.json").stat().st_mtime_ns == written
    with pytest.raises(RecipeError, match="only what is published is merged"):
        with_overrides(recipe, {"storage.publish": None})
