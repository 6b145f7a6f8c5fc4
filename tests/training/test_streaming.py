"""Runs on a live stream: the same losses however often they are stopped, and on however many workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.training.runs import losses, recipe_for, run_local, write_documents
from tests.training.test_resume import adapter_bytes

from cairn.config.recipe import Recipe
from cairn.data import chunks, producer
from cairn.data.manifest import Manifest
from cairn.data.pipeline import STREAM
from cairn.errors import DataError
from cairn.training.trackers.jsonl import read_metrics


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of five records, two chunks ahead."""
    monkeypatch.setattr(chunks, "CHUNK_RECORDS", 5)
    monkeypatch.setattr(producer, "LEAD_CHUNKS", 2)


def streaming(folder: Path, model: Path, *, data: dict[str, Any] | None = None, **training: Any) -> Recipe:
    """20 steps over 200 documents, which are four epochs."""
    folder.mkdir(parents=True, exist_ok=True)
    train = [str(write_documents(folder / "documents.jsonl", 40))]
    return recipe_for(
        folder,
        model,
        data={"train": train, "streaming": True, "shuffle_rows": 12, **(data or {})},
        training={"checkpoint_every": 5, **training},
    )


@pytest.mark.slow
@pytest.mark.usefixtures("group", "small")
@pytest.mark.parametrize("checkpoint_every", [5, None])
def test_a_stopped_stream_ends_as_an_undisturbed_one(
    tmp_path: Path, tiny_path: Path, checkpoint_every: int | None
) -> None:
    """Twice stopped, behind a checkpoint and, where there is none, from the beginning."""
    straight = streaming(tmp_path / "straight", tiny_path, checkpoint_every=checkpoint_every)
    wanted = losses(run_local(straight))
    stopped = streaming(tmp_path / "stopped", tiny_path, checkpoint_every=checkpoint_every)
    for after in (8, 14):
        run_local(stopped, stop_after=after)
        assert list((stopped.run_path / STREAM).glob("round_*/*.arrow")), "a later start goes on with them"
    assert losses(run_local(stopped)) == wanted
    assert adapter_bytes(stopped) == adapter_bytes(straight)
    assert wanted[-1] < wanted[0]
    assert [path.name for path in (stopped.run_path / STREAM).iterdir()] == ["manifest.json"]
    assert Manifest.read(stopped.run_path / STREAM).documents == 40


@pytest.mark.slow
@pytest.mark.usefixtures("group", "small")
def test_bad_data_ends_the_run_in_the_words_of_preparing(tmp_path: Path, tiny_path: Path) -> None:
    recipe = streaming(tmp_path, tiny_path)
    path = Path(str(recipe.data.train[0]))
    path.write_text(path.read_text() + "{broken\n")
    with pytest.raises(DataError, match=r"1 of 41 records are unusable, data\.max_bad_fraction allows 0\.01"):
        run_local(recipe)
    assert read_metrics(recipe.run_path), "what came before it was trained on"


@pytest.mark.slow
@pytest.mark.usefixtures("group", "small")
@pytest.mark.parametrize("stream", [True, False])
def test_what_is_held_out_is_scored(tmp_path: Path, tiny_path: Path, stream: bool) -> None:
    data = {"hold_out": 0.2, "streaming": stream}
    lines = run_local(streaming(tmp_path, tiny_path, data=data, steps=4, evaluate_every=2))
    scored = [line["held_out_bpb"] for line in lines if "held_out_bpb" in line]
    assert len(scored) == 2
    assert scored[1] < scored[0]


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster", "group")
def test_two_workers_of_which_one_is_killed_train_as_one_here(
    tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.training.test_trainer import killer

    from cairn.training.trainer import train

    monkeypatch.setenv("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")
    alone = losses(run_local(streaming(tmp_path / "alone", tiny_path)))
    recipe = streaming(tmp_path / "two", tiny_path, workers=2, micro_batch=1, max_failures=1)
    with killer(recipe, after_steps=[7]) as killed:
        result = train(recipe)
    assert len(killed) == 1
    assert losses(read_metrics(result.run_path)) == pytest.approx(alone, rel=1e-5)
    assert json.loads((result.run_path / STREAM / "manifest.json").read_text())["documents"] == 40


@pytest.mark.full
@pytest.mark.usefixtures("ray_cluster")
def test_bad_data_of_a_stream_is_final_on_the_cluster(tmp_path: Path, tiny_path: Path) -> None:
    from cairn.training.trainer import train

    recipe = streaming(tmp_path, tiny_path, max_failures=3)
    path = Path(str(recipe.data.train[0]))
    path.write_text(path.read_text() + "{broken\n")
    with pytest.raises(DataError, match="1 of 41 records are unusable"):
        train(recipe)
