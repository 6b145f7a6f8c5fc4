"""Training under Ray: two workers, workers that are killed, runs that go on, recipes that are refused."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray.train
from tests.tiny import save_tiny
from tests.training.runs import losses, recipe_for, run_local, write_conversations

from cairn.config.load import with_overrides
from cairn.config.recipe import Recipe
from cairn.errors import CairnError, ModelError, UserError
from cairn.store.store import Store
from cairn.training.folder import CHECKPOINTS, TrainingResult
from cairn.training.state import FAILED, FINISHED, read_state
from cairn.training.trackers.jsonl import METRICS, read_metrics
from cairn.training.trainer import train

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster", "quick_start")]


@pytest.fixture(scope="module")
def quick_start() -> Iterator[None]:
    """One process less for each run: no node of a test is taken away with notice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")
        yield


EVALUATED = {"training.evaluate_every": 8, "training.evaluate_documents": 5}
HELD_OUT = "held_out_bpb"


def two_workers(folder: Path, model: Path, **training: Any) -> Recipe:
    """20 steps under ZeRO 2, a checkpoint every fifth."""
    keys = {"workers": 2, "micro_batch": 1, "zero_stage": 2, "checkpoint_every": 5, **training}
    return recipe_for(folder, model, "sft", training=keys, storage={"publish": "toy"})


@pytest.fixture(scope="module")
def undisturbed(
    ray_cluster: None, quick_start: None, tmp_path_factory: pytest.TempPathFactory, tiny_path: Path
) -> tuple[Recipe, TrainingResult]:
    """A run from the first to the last step, evaluated by a task beside it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    held_out = {"data.validation": [str(write_conversations(folder / "held_out.jsonl", 5))], **EVALUATED}
    recipe = with_overrides(two_workers(folder, tiny_path), {**held_out, "training.evaluate_in_background": True})
    return recipe, train(recipe)


def test_what_a_run_leaves(undisturbed: tuple[Recipe, TrainingResult], tiny_path: Path) -> None:
    from peft import PeftModel

    from cairn.models.load import load_model

    recipe, result = undisturbed
    lines = read_metrics(recipe.run_path)
    assert result.steps == len(losses(lines)) == 20
    assert result.metrics["loss"] == lines[-1]["loss"] < lines[0]["loss"]
    assert all(line["tokens"] > 0 and line["tokens_per_second"] > 0 for line in lines)
    assert all(line["grad_norm"] > 0 and line["peak_memory_bytes"] > 50e6 for line in lines)
    assert lines[0]["learning_rate"] > lines[-1]["learning_rate"]
    assert {path.name for path in (recipe.run_path / CHECKPOINTS).glob("step_*")} == {"step_00000015", "step_00000020"}
    assert list((recipe.run_path / "tensorboard").iterdir())
    assert read_state(recipe.run_path)["status"] == FINISHED
    PeftModel.from_pretrained(load_model(tiny_path, precision="fp32"), result.adapter_path)
    assert result.published == "toy@1"
    card = Store(Path(recipe.storage.path) / "adapters").resolve("toy").card
    assert (card.stage, card.method, card.rank, card.run) == ("sft", "lora", 4, "sft-run")
    assert "q_proj" in card.targets


def test_a_finished_run_is_not_done_again(undisturbed: tuple[Recipe, TrainingResult]) -> None:
    recipe, result = undisturbed
    before = (recipe.run_path / METRICS).stat().st_mtime_ns
    assert train(recipe) == result
    assert (recipe.run_path / METRICS).stat().st_mtime_ns == before


@pytest.mark.usefixtures("group")
def test_one_worker_has_the_same_losses(
    undisturbed: tuple[Recipe, TrainingResult], tmp_path: Path, tiny_path: Path
) -> None:
    validation = [str(path) for path in undisturbed[0].data.validation]
    alone = with_overrides(recipe_for(tmp_path, tiny_path, "sft"), {"data.validation": validation, **EVALUATED})
    here, there = run_local(alone), read_metrics(undisturbed[0].run_path)
    assert losses(here) == pytest.approx(losses(there), rel=1e-5)
    found = [{line["step"]: line[HELD_OUT] for line in lines if HELD_OUT in line} for lines in (here, there)]
    assert list(found[1]) == [8, 16, 20]
    assert found[1] == pytest.approx(found[0], rel=1e-5)


@pytest.mark.usefixtures("group")
def test_one_worker_takes_over_from_two(
    undisturbed: tuple[Recipe, TrainingResult], tmp_path: Path, tiny_path: Path
) -> None:
    """The checkpoint of two workers under ZeRO 2 goes on in one under ZeRO 0."""
    recipe, result = undisturbed
    data = {"train": list(recipe.data.train), "validation": list(recipe.data.validation)}
    alone = recipe_for(tmp_path, tiny_path, "sft", data=data)
    name = "step_00000015"
    shutil.copytree(result.run_path / CHECKPOINTS / name, alone.run_path / CHECKPOINTS / name)
    shutil.copy(result.run_path / METRICS, alone.run_path / METRICS)
    lines = run_local(alone)
    assert lines[:15] == read_metrics(result.run_path)[:15]
    assert losses(lines) == pytest.approx(losses(read_metrics(result.run_path)), rel=1e-5)


def test_killed_workers_leave_the_same_losses(
    undisturbed: tuple[Recipe, TrainingResult], tmp_path: Path, tiny_path: Path
) -> None:
    """SIGKILL after step 7: the group restarts from its checkpoint, and each step stands in the log once."""
    recipe = two_workers(tmp_path, tiny_path, max_failures=1)
    with killer(recipe, after_steps=[7]) as killed:
        result = train(recipe)
    assert len(killed) == 1
    assert losses(read_metrics(result.run_path)) == losses(read_metrics(undisturbed[0].run_path))


@pytest.mark.full
def test_a_run_that_failed_goes_on_when_it_is_started_again(
    undisturbed: tuple[Recipe, TrainingResult], tmp_path: Path, tiny_path: Path
) -> None:
    recipe = two_workers(tmp_path, tiny_path, max_failures=0)
    with killer(recipe, after_steps=[13]), pytest.raises(CairnError, match="failed after 0 restarts"):
        train(recipe)
    assert read_state(recipe.run_path)["status"] == FAILED
    result = train(recipe)
    assert losses(read_metrics(result.run_path)) == losses(read_metrics(undisturbed[0].run_path))


@contextmanager
def killer(recipe: Recipe, *, after_steps: list[int]) -> Iterator[list[int]]:
    """Kills one training worker of this test's own cluster each time the log reaches one of the steps."""
    killed: list[int] = []
    over = threading.Event()

    def watch() -> None:
        for step in after_steps:
            while not over.is_set():
                workers = [p for p in psutil.Process().children(recursive=True) if _is_train_worker(p)]
                lines = read_metrics(recipe.run_path)
                if lines and lines[-1]["step"] >= step and not set(killed) & {p.pid for p in workers} and workers:
                    victim = workers[len(killed) % len(workers)].pid
                    killed.append(victim)
                    os.kill(victim, signal.SIGKILL)
                    break
                time.sleep(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def _is_train_worker(process: psutil.Process) -> bool:
    try:
        return "TrainWorker" in " ".join(process.cmdline())
    except psutil.Error:
        return False


@pytest.mark.full
def test_an_error_of_the_users_is_final(tmp_path: Path) -> None:
    """A model with too few positions is found on the workers; it is not tried again."""

    class CountExceptions(ray.train.UserCallback):
        """Appends a line each time workers raised; runs in Ray's controller process."""

        def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
            with count.open("a") as file:
                file.write("raised\n")

    count = tmp_path / "count"
    short = save_tiny(tmp_path / "short", max_position_embeddings=64)
    recipe = two_workers(tmp_path, short, workers=1, max_failures=3)
    with pytest.raises(ModelError, match="96 tokens are more than the 64 positions"):
        train(recipe, callbacks=[CountExceptions()])
    assert count.read_text() == "raised\n"
    assert "64 positions" in read_state(recipe.run_path)["error"]


def test_what_cannot_start_is_said_at_once(tmp_path: Path, tiny_path: Path) -> None:
    with pytest.raises(UserError, match="9 workers need 9 CPUs, the cluster has 4"):
        train(two_workers(tmp_path, tiny_path, workers=9, global_batch=9))
    recipe = two_workers(tmp_path, tiny_path)
    with pytest.raises(UserError, match=r"belongs to another recipe; changed: training\.global_batch"):
        train(with_overrides(recipe, {"training.global_batch": 6}))
