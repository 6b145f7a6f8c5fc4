"""Training on a Ray cluster: the loop of `training/loop.py` on Ray Train V2 workers.

A dead worker restarts the group from the newest checkpoint, `training.max_failures` times; an error of the user's is
final at once. Starting the same recipe again goes on where it stopped, and a finished run is returned as it is.
The caller is connected to Ray. Cost beside training: the workers' start, about 10 s, mostly imports.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import ray
import ray.train
import ray.train.torch
import ray.util.metrics
import torch.distributed as dist
from ray.train.torch.config import TorchConfig, _TorchBackend
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from cairn.config.load import build
from cairn.config.recipe import Recipe
from cairn.data.pipeline import Prepared, Streamed, provided
from cairn.data.reading import Reading
from cairn.errors import CairnError, StorageError, UserError
from cairn.training.folder import CHECKPOINTS, TrainingResult, claim, publish, result_of
from cairn.training.interface import bind_to
from cairn.training.progress import watched
from cairn.training.start import pinned
from cairn.training.state import FAILED, write_state

if TYPE_CHECKING:
    from cairn.training.learning_rates import Sweep

POLL_INTERVAL_S = "0.2"
"""How often Ray's controller collects reports: each worker may have one waiting, so this bounds a fast step."""


def train(
    recipe: Recipe, prepared: Prepared | None = None, callbacks: Sequence[ray.train.UserCallback] = ()
) -> TrainingResult:
    """Carry out `recipe` on the cluster and publish the result under `storage.publish`, if that is set.

    `prepared`: the data, when it is prepared already. `callbacks` run in Ray's controller process and see every
    logged step (`after_report`). Raises UserError, or CairnError when the workers failed too often.
    """
    recipe = pinned(recipe)
    result = claim(recipe)
    if result is None:
        use_gpu = _use_gpu(recipe)
        _require_resources(recipe, use_gpu=use_gpu)
        os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", POLL_INTERVAL_S)
        try:
            with provided(recipe, prepared) as data, watched(recipe.run_path, f"train {recipe.run_name}"):
                _trainer(recipe, data, callbacks, use_gpu=use_gpu, work=_work, folder=recipe.run_path).fit()
        except ray.train.TrainingFailedError as failure:
            error = _explained(failure, recipe)
            write_state(recipe.run_path, FAILED, error=str(error))
            raise error from failure
    publish(recipe)
    return result_of(recipe)


def find_learning_rate(recipe: Recipe, prepared: Prepared) -> Sweep:
    """Try rates on the recipe's own data and workers, and keep what they did in `learning_rates/` of the storage.

    The run's folder is not touched. Raises as `train` does.
    """
    from cairn.training.learning_rates import Sweep, folder_of

    recipe = pinned(recipe)
    folder, use_gpu = folder_of(recipe), _use_gpu(recipe)
    _require_resources(recipe, use_gpu=use_gpu)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        _trainer(recipe, prepared, (), use_gpu=use_gpu, work=_try_rates, folder=folder).fit()
    except ray.train.TrainingFailedError as failure:
        raise _explained(failure, recipe) from failure
    return Sweep.read(folder)


def _trainer(
    recipe: Recipe,
    data: Prepared | Streamed,
    callbacks: Sequence[ray.train.UserCallback],
    *,
    use_gpu: bool,
    work: Callable[[dict[str, Any]], None],
    folder: Path,
) -> ray.train.torch.TorchTrainer:
    settings = recipe.training
    return ray.train.torch.TorchTrainer(
        work,
        train_loop_config={
            "recipe": recipe.plain(),
            "train": str(data.train),
            "validation": msgspec.to_builtins(data.validation),
        },
        torch_config=NodeTorchConfig(),
        scaling_config=ray.train.ScalingConfig(
            num_workers=settings.workers,
            use_gpu=use_gpu,
            resources_per_worker={"CPU": settings.cpus_per_worker} | ({"GPU": 1.0} if use_gpu else {}),
        ),
        run_config=ray.train.RunConfig(
            name=CHECKPOINTS,
            storage_path=str(folder),
            failure_config=ray.train.FailureConfig(max_failures=settings.max_failures),
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=settings.keep_checkpoints),
            callbacks=[*callbacks, StopWhenFinal()],  # type: ignore[list-item] # annotated as Tune's callbacks
        ),
    )


def _work(config: dict[str, Any]) -> None:
    """One worker, from the recipe to the last step."""
    _settle()
    from cairn.training.loop import run

    run(*_given(config), RaySession())


def _try_rates(config: dict[str, Any]) -> None:
    """One worker of a search for a learning rate."""
    _settle()
    from cairn.training.learning_rates import folder_of, sweep

    session, (recipe, train, validation) = RaySession(), _given(config)
    found = sweep(recipe, train, validation, session)
    if session.rank == 0:
        found.save(folder_of(recipe))


def _settle() -> None:
    """Tell DeepSpeed which device is this worker's, before it is imported."""
    device = ray.train.torch.get_device()
    os.environ.update(LOCAL_SIZE=os.environ["LOCAL_WORLD_SIZE"], DS_ACCELERATOR=device.type)
    if device.index is not None:  # DeepSpeed takes its device from here, and Ray's need not be the local rank
        os.environ["LOCAL_RANK"] = str(device.index)


def _given(config: dict[str, Any]) -> tuple[Recipe, Path, list[Reading]]:
    """Recipe, rows and what is evaluated, as they were sent."""
    recipe = build(config["recipe"], where="the recipe sent to the worker")
    return recipe, Path(config["train"]), msgspec.convert(config["validation"], list[Reading])


class RaySession:
    """The loop's session under Ray Train."""

    def __init__(self) -> None:
        context = ray.train.get_context()
        self.rank, self.world_size = context.get_world_rank(), context.get_world_size()
        self.device = ray.train.torch.get_device()
        self._gauges: dict[str, ray.util.metrics.Gauge] = {}

    def report(self, metrics: Mapping[str, float], checkpoint: Path | None, *, name: str) -> None:
        """Upload the checkpoint into the run's folder and delete the local one; a barrier."""
        given = None if checkpoint is None else ray.train.Checkpoint.from_directory(str(checkpoint))
        ray.train.report(
            dict(metrics), checkpoint=given, checkpoint_dir_name=name, delete_local_checkpoint_after_upload=True
        )

    def expose(self, run: str, values: Mapping[str, float]) -> None:
        """Ray's agent on this node serves them, each under `ray_cairn_` and its name, with the run as a label."""
        for name, value in values.items():
            gauge = self._gauges.get(name)
            if gauge is None:
                told = re.sub(r"\W", "_", f"cairn_{name}")
                gauge = ray.util.metrics.Gauge(told, description=f"{name} of a training run", tag_keys=("run",))
                self._gauges[name] = gauge
            gauge.set(value, tags={"run": run})

    def background(self, work: Callable[..., Any], given: tuple[Any, ...], *, cpus: float) -> Future[Any]:
        """As a task with a worker's resources, outside the workers' placement group, which holds no more than they use."""
        task = ray.remote(work).options(
            num_cpus=cpus,
            num_gpus=1 if self.device.type == "cuda" else 0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(None),  # type: ignore[arg-type] # Ray's way to say so
        )
        future: Future[Any] = task.remote(*given).future()
        return future

    @contextmanager
    def latest_checkpoint(self) -> Iterator[Path | None]:
        """Ray's newest checkpoint; nobody leaves before all have read, for a leaving worker deletes a shared copy."""
        checkpoint = ray.train.get_checkpoint()
        if checkpoint is None:
            yield None
            return
        with checkpoint.as_directory() as folder:
            yield Path(folder)
            dist.barrier()


class NodeTorchConfig(TorchConfig):
    """Ray's torch set-up, with the process group bound to the interface of each node's own Ray address."""

    @property
    def backend_cls(self) -> type[_TorchBackend]:
        """Read by Ray Train."""
        return _NodeBackend


class _NodeBackend(_TorchBackend):
    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        worker_group.execute(_bind_to_node)
        super().on_start(worker_group, backend_config)


def _bind_to_node() -> None:
    bind_to(ray.util.get_node_ip_address())


class StopWhenFinal(ray.train.UserCallback):
    """Ends a run at once when a worker raised what no restart can mend; Ray alone would try `max_failures` times."""

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """An exception here is final for the controller."""
        for error in _ours(worker_exceptions.values()):
            if not isinstance(error, StorageError):
                raise error


def _ours(errors: Any) -> Iterator[CairnError]:
    for error in errors:
        inner = getattr(error, "_base_exc", error)
        if isinstance(inner, CairnError):
            yield inner


def _explained(failure: ray.train.TrainingFailedError, recipe: Recipe) -> CairnError:
    """The worker's own error where it is one of ours, else what Ray says and where to look."""
    errors = [getattr(failure, "controller_failure", None), *getattr(failure, "worker_failures", {}).values()]
    for error in _ours(errors):
        return error
    return CairnError(
        f"training failed after {recipe.training.max_failures} restarts: {failure}",
        where=str(recipe.run_path),
        next_step="run the same recipe again to go on from the newest checkpoint",
    )


def _use_gpu(recipe: Recipe) -> bool:
    choice = recipe.training.use_gpu
    gpus = ray.cluster_resources().get("GPU", 0)
    return choice == "yes" or (choice == "auto" and gpus >= recipe.training.workers)


def _require_resources(recipe: Recipe, *, use_gpu: bool) -> None:
    """Ray would wait for ever for what the cluster does not have."""
    settings = recipe.training
    processes, aside = settings.workers, ""
    if settings.evaluate_in_background:
        processes, aside = processes + 1, " and an evaluation in the background"
    needed = {"CPU": processes * settings.cpus_per_worker} | ({"GPU": processes} if use_gpu else {})
    there = ray.cluster_resources()
    for kind, count in needed.items():
        if there.get(kind, 0) < count:
            raise UserError(
                f"{settings.workers} workers{aside} need {count:g} {kind}s, the cluster has {there.get(kind, 0):g}",
                where="training.workers",
                next_step="lower training.workers or training.cpus_per_worker, or add nodes",
            )
