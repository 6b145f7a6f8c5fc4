"""The engine on two gloo workers: parity with plain torch on the global batch, and state that changes hands.

One spawn carries out every case, for importing torch and DeepSpeed costs a worker ten seconds.
"""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.engines import EXACT, make
from tests.training.toys import batch, masters_of, model, plain_steps, update_error
from torch import multiprocessing

from cairn.stages.sft import Sft

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("group")]

PAIRWISE = [("fp32", 0, 1), ("bf16", 0, 2), ("bf16", 1, 1), ("fp32", 1, 2), ("fp32", 2, 1), ("bf16", 2, 2), ("bf16", 3, 1), ("fp32", 3, 2)]  # fmt: skip
"""(precision, ZeRO stage, accumulation): every pair of values stands somewhere."""
EVERYTHING = list(product(("fp32", "bf16"), (0, 1, 2, 3), (1, 2)))
ROWS = 4


def global_batch(step: int) -> list[Any]:
    """Rows of unequal weight and equal length."""
    return [batch(10 * step + i, length=16) for i in range(ROWS)]


def micro_batches(step: int, rank: int, accumulation: int) -> list[Any]:
    """The share of one of two workers."""
    mine = global_batch(step)[rank::2]
    return [stacked(mine)] if accumulation == 1 else mine


def stacked(rows: list[Any]) -> Any:
    """Several one-row batches as one."""
    names = ("tokens", "labels", "weights", "segments", "positions")
    return type(rows[0])(*(torch.cat([getattr(row, name) for row in rows]) for name in names), sources=())


def work(rank: int, folder: str, cases: list[tuple[str, int, int]]) -> None:
    """One worker: two steps of every case; rank 0 keeps the masters, all workers the saved state."""
    from cairn.training.local import process_group

    torch.set_num_threads(1)
    with process_group(Path(folder) / "init", rank=rank, world_size=2):
        for precision, zero_stage, accumulation in cases:
            engine = make(precision, zero_stage, accumulation)
            results = []
            for step in range(2):
                results.append(engine.step(micro_batches(step, rank, accumulation), Sft()))
            name = Path(folder) / f"{precision}-{zero_stage}-{accumulation}"
            masters = masters_of(engine)
            if rank == 0:
                name.mkdir()
                torch.save((masters, [(r.loss.value, r.grad_norm) for r in results]), name / "found.pt")
            torch.distributed.barrier()
            engine.save(name)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the two workers left."""
    folder = tmp_path_factory.mktemp("two")
    multiprocessing.spawn(work, args=(str(folder), PAIRWISE), nprocs=2)
    return folder


def check(folder: Path, precision: str, zero_stage: int, accumulation: int) -> None:
    start = {name: p.detach().float().clone() for name, p in model(precision).named_parameters()}
    steps = [[micro for rank in (0, 1) for micro in micro_batches(step, rank, accumulation)] for step in (0, 1)]
    wanted, losses, norms = plain_steps(model(precision), Sft(), steps)
    masters, results = torch.load(folder / f"{precision}-{zero_stage}-{accumulation}" / "found.pt")
    assert update_error(masters, wanted, start) < EXACT
    assert [loss for loss, _ in results] == pytest.approx(losses, rel=1e-5)
    assert [norm for _, norm in results] == pytest.approx(norms, rel=1e-5)


@pytest.mark.parametrize(("precision", "zero_stage", "accumulation"), PAIRWISE)
def test_two_workers_equal_plain_torch(found: Path, precision: str, zero_stage: int, accumulation: int) -> None:
    check(found, precision, zero_stage, accumulation)


@pytest.mark.parametrize(("precision", "zero_stage", "accumulation"), PAIRWISE)
def test_one_worker_takes_over_from_two(
    found: Path, tmp_path: Path, precision: str, zero_stage: int, accumulation: int
) -> None:
    """State saved by two workers loads in one, at another stage, bit for bit."""
    saved = found / f"{precision}-{zero_stage}-{accumulation}"
    engine = make(precision, (zero_stage + 1) % 4)
    engine.load(saved)
    engine.save(tmp_path)
    assert (tmp_path / "optimizer.safetensors").read_bytes() == (saved / "optimizer.safetensors").read_bytes()
    assert (tmp_path / "optimizer.json").read_bytes() == (saved / "optimizer.json").read_bytes()


@pytest.mark.full
def test_two_workers_at_every_setting(tmp_path: Path) -> None:
    multiprocessing.spawn(work, args=(str(tmp_path), EVERYTHING), nprocs=2)
    for case in EVERYTHING:
        check(tmp_path, *case)


@pytest.mark.full
def test_offloading_the_optimizer_equals_plain_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSpeed's CPU Adam, built here without optimisation, which halves the minutes that it takes."""
    from tests.training.toys import CLIP, adamw

    from cairn.training.engine import Engine

    compiler = tmp_path / "c++"
    compiler.write_text(f'#!/bin/sh\nexec {os.environ.get("CXX", "c++")} "$@" -O0 -g0\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    steps = [[batch(0)], [batch(1)]]
    start = {name: p.detach().clone() for name, p in model("fp32").named_parameters()}
    wanted, losses, _ = plain_steps(model("fp32"), Sft(), steps)
    policy = model("fp32")
    engine = Engine(
        policy,
        adamw(policy.parameters()),
        accumulation=1,
        zero_stage=2,
        offload_optimizer=True,
        max_grad_norm=CLIP,
    )
    assert [engine.step(step, Sft()).loss.value for step in steps] == pytest.approx(losses, rel=1e-5)
    assert update_error(masters_of(engine), wanted, start) < 1e-3
