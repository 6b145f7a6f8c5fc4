"""A loss that is not finite changes nothing, is traced to its rows, and stops the run or is left out."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.engines import make
from tests.training.runs import losses, recipe_for, run_local
from tests.training.toys import batch, masters_of

from cairn.config.load import with_overrides
from cairn.config.recipe import Recipe
from cairn.data.batch import Batch
from cairn.errors import CairnError
from cairn.stages.base import LossOutput, Models
from cairn.stages.sft import Sft
from cairn.training.folder import ADAPTER
from cairn.training.lines import read_lines
from cairn.training.not_finite import MOST_IN_A_ROW, NOT_FINITE
from cairn.training.state import read_state

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("group")]

ENORMOUS = 3e38
"""A weight that fp32 holds, and of which no multiple is finite."""


class Overflowing(Sft):
    """An infinite loss for batches of token 0, whose gradient is finite all the same."""

    def loss(self, batch: Batch, models: Models) -> LossOutput:
        """Infinitely more, or not."""
        output = super().loss(batch, models)
        return replace(output, total=output.total + (math.inf if int(batch.tokens[0, 0]) == 0 else 0.0))


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_such_a_step_changes_nothing_and_the_next_is_as_if_it_had_not_been(precision: str, zero_stage: int) -> None:
    good, bad = [batch(1), batch(2)], [batch(3), batch(4)]
    for micro in (*good, bad[0]):
        micro.tokens[0, 0] = 1
    bad[1].tokens[0, 0] = 0
    engine, other = make(precision, zero_stage, 2), make(precision, zero_stage, 2)
    first = engine.step(good, Overflowing())
    assert first.applied
    after = masters_of(engine)
    result = engine.step(bad, Overflowing())
    assert not result.applied
    assert [math.isfinite(loss) for loss in result.losses] == [True, False]
    assert all(torch.equal(after[name], master) for name, master in masters_of(engine).items())
    results = [engine.step(good, Overflowing()), other.step(good, Overflowing()), other.step(good, Overflowing())]
    assert results[0].loss.value == results[2].loss.value
    assert all(torch.equal(masters_of(other)[name], master) for name, master in masters_of(engine).items())


def recipe_with_a_bad_row(folder: Path, model: Path, policy: str) -> Recipe:
    """Unpacked conversations, of which the seventh is weighted beyond fp32."""
    recipe = recipe_for(
        folder,
        model,
        "sft",
        data={"packing": False},
        training={"not_finite": policy, "steps": 12, "micro_batch": 1, "checkpoint_every": 2},
    )
    file = Path(str(recipe.data.train[0]))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[6]["messages"][1]["weight"] = ENORMOUS
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return recipe


def names_the_bad_row(line: dict[str, Any]) -> bool:
    """One row of one sample; the file lies where the shards' first maker had it."""
    ((source,),) = line["sources"]
    return str(source).endswith("sft.jsonl:7")


def test_the_step_is_left_out_and_its_rows_are_named(tmp_path: Path, tiny_path: Path) -> None:
    recipe = recipe_with_a_bad_row(tmp_path, tiny_path, "skip")
    lines = run_local(recipe)
    skipped = [line["step"] for line in lines if line["loss"] is None]
    written = read_lines(recipe.run_path / NOT_FINITE)
    assert skipped
    assert [line["step"] for line in written] == skipped
    assert all(names_the_bad_row(line) for line in written)
    assert lines[-1]["skipped_steps"] == len(skipped)
    assert (recipe.run_path / ADAPTER).is_dir()
    again = with_overrides(recipe, {"storage.run": "again"})
    run_local(again, stop_after=skipped[0])
    run_local(again)
    assert losses(run_local(again)) == losses(lines)
    assert [line["step"] for line in read_lines(again.run_path / NOT_FINITE)] == skipped


def test_the_run_stops_with_its_rows_named(tmp_path: Path, tiny_path: Path) -> None:
    recipe = recipe_with_a_bad_row(tmp_path, tiny_path, "stop")
    with pytest.raises(CairnError, match="training diverged at step") as stopped:
        run_local(recipe)
    (line,) = read_lines(recipe.run_path / NOT_FINITE)
    assert names_the_bad_row(line)
    assert NOT_FINITE in str(stopped.value)
    assert read_state(recipe.run_path)["step"] == line["step"] - 1


def test_a_broken_model_is_not_skipped_for_ever(tmp_path: Path, tiny_path: Path) -> None:
    """Each row is of the seventh's weight."""
    recipe = recipe_with_a_bad_row(tmp_path, tiny_path, "skip")
    file = Path(str(recipe.data.train[0]))
    bad = file.read_text().splitlines()[6]
    file.write_text(f"{bad}\n" * 40)
    with pytest.raises(CairnError, match=f"{MOST_IN_A_ROW} steps in a row"):
        run_local(recipe)
    assert read_state(recipe.run_path)["step"] == MOST_IN_A_ROW - 1
