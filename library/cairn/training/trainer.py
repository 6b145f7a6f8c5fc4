"""Training on a Ray cluster: the loop of `training/loop.py` on Ray Train V2 workers.

A dead worker restarts the group from the newest checkpoint, `training.max_failures` times; an error of the user's is
final at once. Starting the same recipe again goes on where it stopped, and a finished run is returned as it is.
The caller is connected to Ray. Cost beside training: the workers' start, about 10 s, mostly imports.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import ray
import ray.autoscaler.sdk
import ray.train
import ray.train.torch
from ray.train.torch.config import TorchConfig, _TorchBackend

from cairn.config.load import build
from cairn.config.recipe import Recipe, Training
from cairn.data.pipeline import Prepared, Streamed, provided
from cairn.data.reading import Reading
from cairn.errors import CairnError, StorageError, UserError
from cairn.training.folder import CHECKPOINTS, TrainingResult, claim, publish, result_of
from cairn.training.interface import bind_to
from cairn.training.progress import watched
from cairn.training.ray_session import RaySession
from cairn.training.start import pinned
from cairn.training.state import FAILED, write_state

if TYPE_CHECKING:
    from cairn.training.learning_rates import Sweep

RESIZE_INTERVAL_S = 30.0
"""How often Ray looks whether an elastic run has room for more workers; a change begins anew from a checkpoint."""
NODE_POLL_S = 1.0
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
        scaling_config=_scaling(settings, use_gpu=use_gpu),
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


def _scaling(settings: Training, *, use_gpu: bool) -> ray.train.ScalingConfig:
    fewest, most = settings.fewest_workers, settings.most_workers
    given: dict[str, Any] = {  # annotated as the first version's
        "num_workers": most if fewest == most else (fewest, most),
        "elastic_resize_monitor_interval_s": RESIZE_INTERVAL_S,
    }
    resources = {"CPU": settings.cpus_per_worker} | ({"GPU": 1.0} if use_gpu else {})
    return ray.train.ScalingConfig(use_gpu=use_gpu, resources_per_worker=resources, **given)


def _use_gpu(recipe: Recipe) -> bool:
    choice = recipe.training.use_gpu
    gpus = ray.cluster_resources().get("GPU", 0)
    return choice == "yes" or (choice == "auto" and gpus >= recipe.training.fewest_workers)


def _require_resources(recipe: Recipe, *, use_gpu: bool) -> None:
    """Ray would wait for ever for what the cluster does not have; nodes that may still come are waited for."""
    settings = recipe.training
    processes, aside = settings.fewest_workers, ""
    if settings.evaluate_in_background:
        processes, aside = processes + 1, " and an evaluation in the background"
    needed = {"CPU": processes * settings.cpus_per_worker} | ({"GPU": float(processes)} if use_gpu else {})
    lacking = _lacking(needed)
    if lacking and settings.wait_seconds:
        one = {"CPU": settings.cpus_per_worker} | ({"GPU": 1.0} if use_gpu else {})
        ray.autoscaler.sdk.request_resources(bundles=[one] * processes)
        until = time.monotonic() + settings.wait_seconds
        while (lacking := _lacking(needed)) and time.monotonic() < until:
            time.sleep(NODE_POLL_S)
    for kind, there in lacking.items():
        raise UserError(
            f"{settings.fewest_workers} workers{aside} need {needed[kind]:g} {kind}s, the cluster has {there:g}",
            where="training.workers",
            next_step="lower training.workers or training.cpus_per_worker, add nodes, or set training.wait_seconds "
            "for a cluster that adds them itself",
        )


def _lacking(needed: Mapping[str, float]) -> dict[str, float]:
    """What the cluster has of each kind that it has too little of."""
    there = ray.cluster_resources()
    return {kind: there.get(kind, 0.0) for kind, count in needed.items() if there.get(kind, 0.0) < count}
