"""Whole runs on two gloo workers equal those on one, for every stage; a run begun by two is ended by one.

One spawn carries out every stage, for importing torch and DeepSpeed costs a worker ten seconds.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.training.runs import losses, recipe_for, run_local
from torch import multiprocessing

from cairn.config.load import build, with_overrides
from cairn.config.recipe import Recipe
from cairn.data.pipeline import prepare_local
from cairn.data.reading import Reading
from cairn.plugins import STAGES
from cairn.training.folder import CHECKPOINTS, claim
from cairn.training.trackers.jsonl import read_metrics

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("group")]

CASES: dict[str, tuple[dict[str, Any], int]] = {
    **{name: ({"name": name}, 4) for name in STAGES.names()},
    "dpo, its reference computed ahead": ({"name": "dpo", "precompute_reference": True}, 4),
    **{f"{name}, five rows for two": ({"name": name}, 5) for name in ("sft", "simpo", "kto")},
}
"""Stage and rows a step; two workers share five rows as three and two."""
OF_THE_MACHINE = ("time", "second", "memory", "utilisation", "mfu")
"""In the names of figures that may differ."""


def work(rank: int, folder: str, jobs: list[tuple[dict[str, Any], str, list[Any]]]) -> None:
    """One worker of every job: recipe, rows, what is evaluated."""
    import torch

    from cairn.training.local import LocalSession, process_group
    from cairn.training.loop import run

    torch.set_num_threads(1)
    with process_group(Path(folder) / "init", rank=rank, world_size=2):
        for values, rows, validation in jobs:
            recipe = build(values)
            session = LocalSession(recipe.run_path / CHECKPOINTS)
            run(recipe, Path(rows), msgspec.convert(validation, list[Reading]), session)


@pytest.fixture(scope="module")
def by_two(tmp_path_factory: pytest.TempPathFactory, tiny_path: Path) -> dict[str, Recipe]:
    """A finished run of two workers for each case."""
    folder = tmp_path_factory.mktemp("two")
    recipes, jobs = {}, []
    for number, (case, (stage, rows)) in enumerate(CASES.items()):
        workers = {"min": 1, "max": 2}
        training = {"steps": 3, "workers": workers, "micro_batch": 1, "global_batch": rows}
        recipe = recipe_for(folder / str(number), tiny_path, stage["name"], stage=stage, training=training)
        claim(recipe)
        prepared = prepare_local(recipe)
        jobs.append((recipe.plain(), str(prepared.train), msgspec.to_builtins(prepared.validation)))
        recipes[case] = recipe
    before = dict(os.environ)
    try:
        multiprocessing.spawn(work, args=(str(folder), jobs), nprocs=2)
    finally:
        os.environ.clear()
        os.environ.update(before)
    return recipes


@pytest.mark.parametrize("case", CASES)
def test_two_workers_equal_one(case: str, by_two: dict[str, Recipe], tmp_path: Path) -> None:
    recipe = by_two[case]
    two = read_metrics(recipe.run_path)
    one = run_local(with_overrides(recipe, {"training.workers": 1, "storage.path": str(tmp_path / "storage")}))
    assert len(two) == 3
    assert losses(two) == pytest.approx(losses(one), rel=1e-5)
    for name in one[0]:
        if isinstance(one[0][name], float) and not any(part in name for part in OF_THE_MACHINE):
            expected = [line[name] for line in one]
            assert [line[name] for line in two] == pytest.approx(expected, rel=1e-3, abs=1e-5), name
