"""`services/serve.yaml`: valid by Serve's own schema, and deployed by `serve deploy` on a cluster of `ray start`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml
from tests.serving.conftest import free_port
from tests.tiny import save_tiny

from cairn.errors import RecipeError
from cairn.serving.deploy import DASHBOARD_PREFIX, EVALUATION_PREFIX
from cairn.serving.settings import EvaluationSettings, InferenceSettings

ROOT = Path(__file__).parents[2]
FILE = ROOT / "services" / "serve.yaml"


@pytest.mark.unit
def test_the_file_passes_serves_schema_and_ours() -> None:
    from ray.serve.schema import ServeDeploySchema

    config = ServeDeploySchema.model_validate(yaml.safe_load(FILE.read_text()))
    assert config.http_options.host == "127.0.0.1"
    applications = {application.name: application for application in config.applications}
    assert {name: a.route_prefix for name, a in applications.items()} == {
        "inference": "/",
        "evaluation": EVALUATION_PREFIX,
        "dashboard": DASHBOARD_PREFIX,
    }
    inference = InferenceSettings.read(applications["inference"].args)
    home = Path(os.environ["CAIRN_HOME"])
    assert inference.model == str(home / "models" / "SmolLM2-135M-Instruct")
    assert EvaluationSettings.read(applications["evaluation"].args).data_roots == (str(home / "sample"),)


@pytest.mark.unit
def test_a_mistake_in_the_args_is_named() -> None:
    with pytest.raises(RecipeError) as refused:
        InferenceSettings.read({"modell": "x", "precision": "fp8"})
    assert {problem.path for problem in refused.value.problems} == {"args.modell", "args.precision"}
    assert "did you mean 'model'" in str(refused.value)


@dataclass(frozen=True)
class Head:
    """A cluster started by `ray start --head`, and how to reach it."""

    environment: dict[str, str]
    dashboard: str

    def command(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A program of this virtual environment."""
        program = str(Path(sys.executable).parent / words[0])
        return subprocess.run(
            [program, *words[1:]], env=self.environment, check=check, capture_output=True, text=True, timeout=300
        )


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    """Its data home holds a tiny model in the place of the sample's; only its own processes are ended."""
    home = tmp_path / "home"
    save_tiny(home / "models" / "SmolLM2-135M-Instruct", max_position_embeddings=2048)
    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))
    dashboard = free_port()
    environment = {
        **os.environ,
        "RAY_AUTH_MODE": "disabled",
        "PYTHONPATH": str(ROOT),
        "CAIRN_HOME": str(home),
        "OMP_NUM_THREADS": "1",
        "RAY_TMPDIR": str(folder),
    }
    environment.pop("RAY_ADDRESS", None)
    ports = {
        "--port": free_port(),
        "--dashboard-port": dashboard,
        "--dashboard-agent-listen-port": free_port(),
        "--dashboard-agent-grpc-port": free_port(),
        "--runtime-env-agent-port": free_port(),
        "--metrics-export-port": free_port(),
        "--ray-client-server-port": free_port(),
        "--node-manager-port": free_port(),
        "--object-manager-port": free_port(),
    }
    words = [str(word) for pair in ports.items() for word in pair]
    log = (tmp_path / "ray.log").open("w")
    process = subprocess.Popen(
        [
            str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", "--disable-usage-stats",
            "--node-ip-address", "127.0.0.1", "--num-cpus", "4", "--object-store-memory", "150000000",
            "--temp-dir", str(folder), *words,
        ],
        env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    address = f"http://127.0.0.1:{dashboard}"
    try:
        wait_for(lambda: httpx.get(f"{address}/api/version").status_code == 200, timeout_s=90)
        yield Head(environment, address)
    finally:
        process.terminate()
        process.wait(timeout=60)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def wait_for(ready: object, *, timeout_s: float) -> None:
    """Until `ready()` is true; its errors count as not yet."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            if ready():  # type: ignore[operator]
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.3)
    raise TimeoutError(f"not ready after {timeout_s} s")


@pytest.mark.cluster
def test_serve_deploy(head: Head, tmp_path: Path) -> None:
    config = yaml.safe_load(FILE.read_text())
    config["http_options"]["port"] = free_port()
    file = tmp_path / "serve.yaml"
    file.write_text(yaml.safe_dump(config))
    head.command("serve", "deploy", str(file), "-a", head.dashboard)
    states: dict[str, str] = {}

    def running() -> bool:
        status = json.loads(httpx.get(f"{head.dashboard}/api/serve/applications/", timeout=30).text)
        states.update({name: application["status"] for name, application in status["applications"].items()})
        failures = {name: a["message"] for name, a in status["applications"].items() if a["status"] == "DEPLOY_FAILED"}
        assert not failures, failures
        return set(states.values()) == {"RUNNING"}

    wait_for(running, timeout_s=240)
    assert set(states) == {"inference", "evaluation", "dashboard"}
    url = f"http://127.0.0.1:{config['http_options']['port']}"
    body = {"model": "SmolLM2-135M-Instruct", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
    chat = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).json()
    assert chat["usage"]["completion_tokens"] > 0
    scored = httpx.post(f"{url}{EVALUATION_PREFIX}", json={"texts": ["Some text."]}, timeout=60).json()
    assert scored["bytes"] == 10
    page = httpx.get(f"{url}{DASHBOARD_PREFIX}", follow_redirects=True, timeout=60)
    assert (page.status_code, page.headers["content-type"].split(";")[0]) == (200, "text/html")
    head.command("serve", "shutdown", "-a", head.dashboard, "-y")
