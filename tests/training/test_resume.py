"""Invariant 4 on one CPU worker: an interrupted run equals an undisturbed one, bit for bit."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from tests.training.runs import losses, recipe_for, run_local

from cairn.config.load import with_overrides
from cairn.config.recipe import Recipe
from cairn.errors import StorageError, UserError
from cairn.plugins import STAGES
from cairn.training.folder import ADAPTER, CHECKPOINTS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("group")]


OFTEN = {(stage, "lora") for stage in STAGES.names()} | {("pretrain", "full"), ("kto", "full")}
"""The others run with the whole matrix."""


def adapter_bytes(recipe: Recipe) -> dict[str, bytes]:
    """The trained weights."""
    found = {path.name: path.read_bytes() for path in (recipe.run_path / ADAPTER).glob("*.safetensors")}
    assert found
    return found


CASES = [
    pytest.param(stage, method, marks=() if (stage, method) in OFTEN else pytest.mark.full)
    for stage, method in itertools.product(STAGES.names(), ("lora", "full"))
]


@pytest.mark.parametrize(("stage", "method"), CASES)
def test_ten_and_ten_are_twenty(stage: str, method: str, tmp_path: Path, tiny_path: Path) -> None:
    """Killed after step 13 with a checkpoint of step 10: steps 11 to 13 are done again and logged once."""
    adapter = {"name": method} if method == "full" else {"name": "lora", "rank": 4, "dropout": 0.1}
    found = []
    for folder, stop_after in (("straight", None), ("stopped", 13)):
        recipe = recipe_for(tmp_path / folder, tiny_path, stage, adapter=adapter, training={"checkpoint_every": 10})
        if stop_after is not None:
            assert len(run_local(recipe, stop_after=stop_after)) == stop_after
        found.append((losses(run_local(recipe)), adapter_bytes(recipe)))
    (straight, weights), (resumed, resumed_weights) = found
    assert len(straight) == 20
    assert resumed == straight
    assert resumed_weights == weights
    if stage in ("sft", "pretrain"):
        assert straight[-1] < straight[0]


@pytest.mark.parametrize("method", ["lora", "full"])
def test_resuming_at_another_zero_stage(method: str, tmp_path: Path, tiny_path: Path) -> None:
    """How a run is carried out is free to change between two starts; the losses go on within rounding. Full training has
    two groups of parameters, those that decay and those that do not."""
    recipe = recipe_for(tmp_path, tiny_path, training={"steps": 8, "checkpoint_every": 2}, adapter={"name": method})
    straight = losses(run_local(with_overrides(recipe, {"storage.run": "straight"})))
    for stop_after, zero_stage in ((2, 0), (4, 3), (6, 1), (None, 2)):
        other = with_overrides(recipe, {"training.zero_stage": zero_stage, "training.micro_batch": 1 + zero_stage % 2})
        run_local(other, stop_after=stop_after)
    assert losses(run_local(other)) == pytest.approx(straight, rel=1e-5)


def test_a_damaged_checkpoint_and_a_changed_recipe_are_refused(tmp_path: Path, tiny_path: Path) -> None:
    recipe = recipe_for(tmp_path, tiny_path, training={"checkpoint_every": 2})
    run_local(recipe, stop_after=3)
    with pytest.raises(UserError, match=r"belongs to another recipe; changed: optimizer\.learning_rate"):
        run_local(with_overrides(recipe, {"optimizer.learning_rate": 1.0}))
    (checkpoint,) = (recipe.run_path / CHECKPOINTS).iterdir()
    state = checkpoint / "optimizer.safetensors"
    content = bytearray(state.read_bytes())
    content[-1] ^= 1
    state.write_bytes(bytes(content))
    with pytest.raises(StorageError, match=r"optimizer\.safetensors is missing or changed"):
        run_local(recipe)
