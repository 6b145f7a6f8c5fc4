"""`cluster.yaml` passes Ray's own validation, as `ray up` runs it."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.chdir(ROOT)
    return yaml.safe_load((ROOT / "cluster.yaml").read_text())


def prepared(config: dict[str, object]) -> dict[str, object]:
    from ray.autoscaler._private.util import prepare_config, validate_config

    ready = prepare_config(copy.deepcopy(config))
    validate_config(ready)
    return ready


def test_it_is_valid_and_starts_every_worker(cluster: dict[str, object]) -> None:
    ready = prepared(cluster)
    workers = len(cluster["provider"]["worker_ips"])  # type: ignore[index]
    (kind,) = ready["available_node_types"].values()  # type: ignore[attr-defined]
    assert (kind["min_workers"], kind["max_workers"], ready["max_workers"]) == (workers, workers, workers)
    head, worker = ready["head_start_ray_commands"], ready["worker_start_ray_commands"]
    assert "--head" in head[-1]  # type: ignore[index]
    assert "--autoscaling-config=~/ray_bootstrap_config.yaml" in head[-1]  # type: ignore[index]
    assert "$RAY_HEAD_IP" in worker[-1]  # type: ignore[index]


def test_what_it_mounts_exists(cluster: dict[str, object]) -> None:
    mounts = cluster["file_mounts"]
    assert isinstance(mounts, dict)
    assert mounts
    assert all((ROOT / source).exists() for source in mounts.values())


def test_a_key_that_ray_does_not_know_would_be_refused(cluster: dict[str, object]) -> None:
    with pytest.raises(Exception, match="wrokers"):
        prepared({**cluster, "wrokers": 2})
