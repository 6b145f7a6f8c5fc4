"""AdaLoRA in whole runs: what DeepSpeed does to gradients changes nothing, and neither does an interruption."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.training.runs import losses, recipe_for, run_local

from cairn.adapters.files import read_lora
from cairn.config.load import with_overrides
from cairn.config.recipe import Recipe
from cairn.errors import AdapterError, UserError
from cairn.training.callbacks.ranks import RANKS
from cairn.training.fit import require_fit
from cairn.training.folder import ADAPTER
from cairn.training.lines import read_lines

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("group")]

ADALORA = {"name": "adalora", "rank": 4, "initial_rank": 6, "warmup": 0.2, "final": 0.2}
LAYERS = 2 * 7


def _recipe(folder: Path, model: Path, **training: object) -> Recipe:
    return recipe_for(
        folder,
        model,
        "sft",
        adapter=ADALORA,
        training={"steps": 10, "checkpoint_every": 3, "max_grad_norm": 0.5, **training},
    )


@pytest.mark.parametrize(("precision", "zero_stage"), [("bf16", 2), ("fp32", 0)])
def test_a_run_stopped_in_the_middle_of_the_schedule_goes_on_exactly(
    precision: str, zero_stage: int, tmp_path: Path, tiny_path: Path
) -> None:
    recipe = _recipe(tmp_path, tiny_path, precision=precision, zero_stage=zero_stage)
    straight = run_local(recipe)
    again = with_overrides(recipe, {"storage.run": "again"})
    run_local(again, stop_after=5)
    resumed = run_local(again)
    assert losses(resumed) == losses(straight)
    ranks = [line["mean_rank"] for line in straight]
    assert ranks == [line["mean_rank"] for line in resumed]
    assert (ranks[0], ranks[-1]) == (6, 4)
    assert ranks == sorted(ranks, reverse=True)
    assert len(set(ranks)) > 3, "they fall step by step"
    first, second = (read_lora(one.run_path / ADAPTER) for one in (recipe, again))
    assert sum(a.shape[0] for a, _ in first.layers.values()) == 4 * LAYERS
    lines = read_lines(recipe.run_path / RANKS)
    assert lines == read_lines(again.run_path / RANKS)
    assert {path: rank for path, rank in lines[-1]["ranks"].items() if rank} == {
        path: a.shape[0] for path, (a, _) in first.layers.items()
    }
    note = json.loads((recipe.run_path / ADAPTER / "run.json").read_text())
    assert (note["method"], note["recipe"]["adapter"]["name"]) == ("lora", "adalora")
    for path, pair in first.layers.items():
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(pair, second.layers[path], strict=True))


@pytest.mark.parametrize("zero_stage", [1, 2])
def test_what_is_kept_does_not_depend_on_the_zero_stage(zero_stage: int, tmp_path: Path, tiny_path: Path) -> None:
    plain = _recipe(tmp_path, tiny_path)
    sharded = with_overrides(plain, {"storage.run": "sharded", "training.zero_stage": zero_stage})
    assert losses(run_local(sharded)) == pytest.approx(losses(run_local(plain)), rel=1e-5)
    first, second = (read_lora(one.run_path / ADAPTER) for one in (plain, sharded))
    assert {path: a.shape for path, (a, _) in first.layers.items()} == {
        path: a.shape for path, (a, _) in second.layers.items()
    }


def test_its_result_goes_on_as_a_lora(tmp_path: Path, tiny_path: Path) -> None:
    recipe = _recipe(tmp_path, tiny_path)
    last = run_local(recipe)[-1]["loss"]
    start = {"path": str(tiny_path), "adapter": str(recipe.run_path / ADAPTER)}
    after = recipe_for(
        tmp_path / "after", tiny_path, "sft", model=start, adapter={"name": "lora"}, training={"steps": 1}
    )
    assert run_local(after)[0]["loss"] < last + 0.5
    with pytest.raises(AdapterError, match=r"set adapter\.name=lora"):
        run_local(with_overrides(after, {"adapter": ADALORA, "storage.run": "anew"}))


def test_a_schedule_that_cannot_be_is_refused_before_the_run(tmp_path: Path, tiny_path: Path) -> None:
    recipe = _recipe(tmp_path, tiny_path)
    for changes, reason in (
        ({"adapter": {**ADALORA, "initial_rank": 2}}, "initial_rank=2 is below adapter.rank=4"),
        ({"adapter": {**ADALORA, "warmup": 0.8, "final": 0.2}}, "leave no step to allocate"),
        ({"adapter": {"name": "adalora", "rank": 100}}, "initial rank 150 is above the smaller side"),
        ({"training.zero_stage": 3}, "set training.zero_stage to 2 or less"),
    ):
        with pytest.raises(UserError, match=reason):
            require_fit(with_overrides(recipe, changes))
