"""Two hosts, two workers: the process group finds the address that the nodes share, without being told.

On these hosts, as on many, the host name resolves to an address that is not theirs; gloo left alone binds to it and
the workers never meet.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.hosts import hosts, reason_not_to

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 480


@pytest.fixture
def recipe(tmp_path: Path, tiny_path: Path) -> Path:
    rows = [{"instruction": f"say {n}", "input": "", "output": f"it is {n}"} for n in range(40)]
    (tmp_path / "train.json").write_text(json.dumps(rows))
    values = {
        "model": {"path": str(tiny_path)},
        "data": {"train": [str(tmp_path / "train.json")], "sequence_length": 128},
        "stage": {"name": "sft"},
        "training": {"workers": 2, "steps": 2, "global_batch": 4, "precision": "fp32", "zero_stage": 2},
        "storage": {"path": str(tmp_path / "storage"), "run": "hosts"},
    }
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(values))
    return path


@pytest.mark.full
def test_two_workers_on_two_hosts_train_together(recipe: Path, tmp_path: Path) -> None:
    if reason := reason_not_to():
        pytest.skip(reason)
    ray = f"{sys.executable} -m ray.scripts.scripts start --num-cpus=1 --object-store-memory=120000000"
    with hosts(2) as (first, second):
        variables = {"CAIRN_HOME": str(tmp_path / "home"), "RAY_ADDRESS": f"{first.address}:6379"}
        waiting = f"until {sys.executable} -c 'import socket; socket.create_connection((\"{first.address}\", 6379), 1)'; do sleep 1; done"
        head = first.start(
            f"{ray} --head --port=6379 --node-ip-address={first.address} --include-dashboard=false --disable-usage-stats"
            f" && {sys.executable} {ROOT}/tests/cluster/await_nodes.py 2 && {sys.executable} -m cairn --debug train {recipe}",
            **variables,
        )
        worker = second.start(
            f"({waiting}) 2>/dev/null; {ray} --address={first.address}:6379 --node-ip-address={second.address} --block",
            **variables,
        )
        try:
            text, _ = head.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            head.kill()
            text = head.communicate()[0] + "\ntimed out"
        finally:
            worker.kill()
            worker.wait(timeout=30)
    assert head.returncode == 0, text
    assert f"nodes: {first.address} {second.address}" in text
    lines = [json.loads(line) for line in (tmp_path / "storage/runs/hosts/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [1, 2]
