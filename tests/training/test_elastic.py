"""An elastic run on a cluster that loses a node and finds another: it goes on, and computes what it would have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.training.runs import losses, recipe_for, run_local

from cairn.config.load import with_overrides
from cairn.training.trackers.jsonl import read_metrics

pytestmark = [pytest.mark.cluster, pytest.mark.full, pytest.mark.usefixtures("group")]

SCRIPT = """
import json, os, sys, threading, time
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from cairn.config.load import build
from cairn.training.trackers.jsonl import read_metrics
import cairn.training.trainer as trainer

values = json.loads(sys.argv[1])
recipe = build(values)
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
second = cluster.add_node(num_cpus=1)
cluster.wait_for_nodes()
ray.init(address=cluster.address, log_to_driver=False)

def lose():
    while len(read_metrics(recipe.run_path)) < 6:
        time.sleep(0.1)
    cluster.remove_node(second, allow_graceful=False)

threading.Thread(target=lose, daemon=True).start()
trainer.train(recipe)
print("nodes left:", sum(node["Alive"] for node in ray.nodes()))
ray.shutdown()
cluster.shutdown()
"""


def test_a_lost_node_costs_no_step(tmp_path: Path, tiny_path: Path) -> None:
    """Two workers, then one; 5 rows a step, which neither two nor anything else divides."""
    training = {"steps": 14, "global_batch": 5, "micro_batch": 1, "checkpoint_every": 2, "max_failures": 5}
    plain = recipe_for(tmp_path, tiny_path, "dpo", training=training)
    elastic = with_overrides(plain, {"training.workers": {"min": 1, "max": 2}, "storage.run": "elastic"})
    alone = losses(run_local(with_overrides(plain, {"storage.run": "alone"})))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(elastic.plain())],
        env={**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2"},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "nodes left: 1" in done.stdout
    assert losses(read_metrics(elastic.run_path)) == pytest.approx(alone, rel=1e-5)
