"""Every recipe in jobs/recipes: it loads, names what `cairn sample` makes, and trains two steps on the tiny model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.training.runs import WRITERS, losses, run_local, write_comparisons

from cairn.config.load import with_overrides
from cairn.config.pipeline import load_steps
from cairn.config.recipe import Recipe
from cairn.data.sample import build_corpus
from cairn.plugins import STAGES
from cairn.training.folder import ADAPTER, TrainingResult, publish, result_of
from cairn.training.pipeline import carry_out
from cairn.training.start import pinned

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("group")]

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted((ROOT / "jobs" / "recipes").glob("*.yaml"))

LINE_KEYS = {"step", "time"}
NOT_ALWAYS = {"mfu", "nll"}
"""Documented figures that a plain run on a CPU has not."""


def documented(stage: str) -> set[str]:
    """The figures of a stage by docs/stages.md."""
    page = (ROOT / "docs" / "stages.md").read_text(encoding="utf-8")
    _, _, table = page.partition("| figure | stages | meaning |")
    found: set[str] = set()
    for line in table.partition("\n\n")[0].splitlines()[2:]:
        figures, stages = line.split("|")[1:3]
        if stages.strip() == "all" or f"`{stage}`" in stages:
            found |= set(re.findall(r"`(\w+)`", figures))
    return found - NOT_ALWAYS


def small(parsed: Recipe, folder: Path, model: Path) -> Recipe:
    """`parsed` with the tiny model, toy data of its stage's kind, one worker and two steps; all else is its own.

    The optimizer stays where the weights are: to offload it DeepSpeed compiles for minutes (`test_two_workers.py`).
    """
    chosen = parsed.data.train_on == "chosen"
    write = write_comparisons if chosen else WRITERS.get(parsed.stage.name, write_comparisons)
    train, validation = (str(write(folder / f"{name}.jsonl", 40)) for name in ("train", "validation"))
    changes = {
        "model.path": str(model),
        "data.train": [train],
        "data.validation": [validation] if parsed.data.validation else [],
        "data.sequence_length": 128,
        "training.steps": 2,
        "training.workers": 1,
        "training.offload_optimizer": False,
        "training.evaluate_documents": 4,
        "storage.path": str(folder / "storage"),
        "storage.run": parsed.stage.name,
    }
    return with_overrides(parsed, changes)


def trained(recipe: Recipe) -> TrainingResult:
    """Two steps, their figures as documented, and the result published where the recipe says so."""
    recipe = pinned(recipe)
    lines = run_local(recipe)
    assert len(losses(lines)) == 2
    assert all(loss > 0 for loss in losses(lines))
    assert (recipe.run_path / ADAPTER / "run.json").is_file()
    figures = {name for name in lines[0] if not name.startswith("held_out_")} - LINE_KEYS
    assert figures == documented(recipe.stage.name)
    if recipe.data.validation:
        assert any(name.startswith("held_out_") for name in lines[-1])
    publish(recipe)
    return result_of(recipe)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_trains_two_steps_of_each_stage(recipe: Path, tmp_path: Path, tiny_path: Path) -> None:
    steps = [small(step, tmp_path, tiny_path) for step in load_steps(recipe)]
    results = carry_out(steps, trained)
    assert [result.published is not None for result in results] == [step.storage.publish is not None for step in steps]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_says_in_two_lines_what_it_is(recipe: Path) -> None:
    first, second, third = recipe.read_text(encoding="utf-8").splitlines()[:3]
    assert first.startswith("# ")
    assert second.startswith("# ")
    assert "cairn sample" in f"{first} {second}"
    assert not third.startswith("#")


def test_every_stage_has_a_recipe_of_its_name() -> None:
    named = {recipe.stem: load_steps(recipe)[0].stage.name for recipe in RECIPES}
    assert {stage: named.get(stage) for stage in STAGES.names()} == {stage: stage for stage in STAGES.names()}


def test_every_file_that_a_recipe_names_is_made_by_cairn_sample(tmp_path: Path) -> None:
    build_corpus(tmp_path / "sample", fraction=0.02)
    named = {name for recipe in RECIPES for name in re.findall(r"\$CAIRN_HOME/(sample/[\w./]+)", recipe.read_text())}
    assert named
    assert not [name for name in sorted(named) if not (tmp_path / name).is_file()]
