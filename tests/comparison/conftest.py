"""Finished runs of every preference stage over one preference set, made once for this folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.training.runs import recipe_for, run_local, write_comparisons

STAGES = ("sft", "dpo", "kto", "orpo", "simpo", "cpo", "reward")


@pytest.fixture(scope="session")
def storage(group: None, tmp_path_factory: pytest.TempPathFactory, tiny_path: Path) -> Path:
    """A storage path with a run of each stage, named as it, and `sft-full`; all evaluate `pairs.jsonl` beside it."""
    folder = tmp_path_factory.mktemp("compared")
    train, held_out = write_comparisons(folder / "train.jsonl", 40), write_comparisons(folder / "pairs.jsonl", 12)
    data = {"train": [str(train)], "validation": [str(held_out)], "train_on": "chosen"}
    for stage in STAGES:
        adapters = [{"name": "lora", "rank": 4}, {"name": "full"}] if stage == "sft" else [{"name": "lora"}]
        for adapter in adapters:
            run = f"{stage}-full" if adapter["name"] == "full" else stage
            recipe = recipe_for(
                folder / run,
                tiny_path,
                stage,
                data=data,
                adapter=adapter,
                training={"steps": 6},
                storage={"path": str(folder / "storage"), "run": run},
            )
            run_local(recipe)
    return folder / "storage"
