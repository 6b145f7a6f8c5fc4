"""A training session without Ray: this process, alone or with others over gloo. For tests, debugging and profiling."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from cairn.errors import UserError


class LocalSession:
    """Keeps checkpoints in `folder`; the process group must be up (`process_group`)."""

    def __init__(self, folder: Path, *, keep_checkpoints: int = 2) -> None:
        self.folder, self.keep_checkpoints = Path(folder), keep_checkpoints
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.device = torch.device("cpu")
        self.reports: list[dict[str, float]] = []
        self._pool: ProcessPoolExecutor | None = None

    def report(self, metrics: Mapping[str, float], checkpoint: Path | None, *, name: str) -> None:
        """Remember the metrics, keep the checkpoint, drop the oldest beyond the number to keep."""
        self.reports.append(dict(metrics))
        if checkpoint is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(self.folder / name, ignore_errors=True)
            shutil.move(checkpoint, self.folder / name)
            for old in self._kept()[: -self.keep_checkpoints]:
                shutil.rmtree(old)
        dist.barrier()

    def expose(self, run: str, values: Mapping[str, float]) -> None:
        """Always refused."""
        raise UserError(
            "there is no Ray here, whose endpoint would show the figures",
            where="training.trackers",
            next_step="leave prometheus out",
        )

    def background(self, work: Callable[..., Any], given: tuple[Any, ...], *, cpus: float) -> Future[Any]:
        """In one further process, one after the other."""
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        return self._pool.submit(work, *given)

    @contextmanager
    def latest_checkpoint(self) -> Iterator[Path | None]:
        """The checkpoint of the highest name."""
        kept = self._kept()
        yield kept[-1] if kept else None
        dist.barrier()

    def _kept(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("step_*") if path.is_dir())


@contextmanager
def process_group(init_file: Path, *, rank: int = 0, world_size: int = 1) -> Iterator[None]:
    """A gloo process group that meets at `init_file` (fresh, seen by all); left at the end."""
    before = dict(os.environ)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_SIZE=str(world_size))
    dist.init_process_group("gloo", init_method=f"file://{init_file}", rank=rank, world_size=world_size)
    try:
        yield
    finally:
        dist.destroy_process_group()
        os.environ.clear()
        os.environ.update(before)
