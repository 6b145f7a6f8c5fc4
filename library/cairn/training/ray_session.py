"""One worker's place in a run under Ray Train: what the loop needs of its surroundings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
import ray.train
import ray.train.torch
import ray.util.metrics
import torch.distributed as dist
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


class RaySession:
    """The loop's session under Ray Train."""

    def __init__(self) -> None:
        context = ray.train.get_context()
        self.rank, self.world_size = context.get_world_rank(), context.get_world_size()
        self.device = ray.train.torch.get_device()
        self._gauges: dict[str, ray.util.metrics.Gauge] = {}

    def report(self, metrics: Mapping[str, float], checkpoint: Path | None, *, name: str) -> None:
        """The checkpoint goes into the run's folder while training goes on, and the local one is deleted; a barrier."""
        given = None if checkpoint is None else ray.train.Checkpoint.from_directory(str(checkpoint))
        ray.train.report(
            dict(metrics),
            checkpoint=given,
            checkpoint_dir_name=name,
            checkpoint_upload_mode=ray.train.CheckpointUploadMode.ASYNC,
            delete_local_checkpoint_after_upload=True,
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
