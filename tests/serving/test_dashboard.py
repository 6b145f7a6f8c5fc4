"""The dashboard: its JSON says what the files say, the page needs no outside network, and a browser shows it."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from cairn.serving.dashboard.app import POLICY, build_app
from cairn.serving.dashboard.pages import assembled
from cairn.serving.dashboard.series import MAX_POINTS, read_series, thin
from cairn.store.card import Base, Facts
from cairn.store.store import Store

pytestmark = pytest.mark.unit


def write_run(
    folder: Path, *, steps: int, planned: int, rate: float, status: str | None, bad_line: bool = False
) -> None:
    """A run folder as a training run leaves it."""
    folder.mkdir(parents=True)
    recipe = {"model": {"path": "/models/SmolLM2-135M-Instruct"}, "stage": {"name": "sft"}, "adapter": {"name": "lora"}}
    (folder / "recipe.json").write_text(json.dumps({**recipe, "training": {"steps": planned}}))
    if status:
        (folder / "state.json").write_text(json.dumps({"status": status, "steps": planned}))
    with (folder / "metrics.jsonl").open("w") as out:
        for step in range(1, steps + 1):
            noise = math.sin(7.3 * step * rate) * 0.05 + math.sin(2.1 * step) * 0.04
            line: dict[str, Any] = {
                "step": step,
                "loss": 1.1 + 1.6 * math.exp(-step * rate) + noise,
                "learning_rate": 2e-4 * 0.5 * (1 + math.cos(math.pi * step / planned)),
                "grad_norm": 0.8 + 0.5 * math.exp(-step / 9) + 2 * abs(noise),
                "tokens_per_second": 1480 + 300 * noise,
            }
            if step % 10 == 0:
                line["held_out_bpb"] = 0.93 + 0.4 * math.exp(-step * rate)
            out.write(json.dumps(line) + "\n")
            if bad_line and step == 3:
                out.write("not json\n")
        out.write('{"step": 9999, "lo')


def write_ranks(path: Path) -> None:
    """Ranks of 4 layers that fall from 9 to 6 on the average, as AdaLoRA leaves them."""
    kinds = ("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj")
    lines = []
    for step in range(1, 31):
        ranks = {
            f"model.layers.{layer}.{kind}": round(9 - (0.05 + 0.03 * layer + 0.02 * i) * step)
            for layer in range(4)
            for i, kind in enumerate(kinds)
        }
        lines.append(json.dumps({"step": 4 * step, "ranks": ranks}) + "\n")
    path.write_text("".join(lines))


def write_storage(root: Path) -> Path:
    """Runs, a search and adapters."""
    write_run(root / "runs" / "docstrings", steps=120, planned=120, rate=0.04, status="finished", bad_line=True)
    write_run(root / "runs" / "sft-3f9a01bc", steps=47, planned=200, rate=0.02, status="running")
    write_ranks(root / "runs" / "docstrings" / "ranks.jsonl")
    search = root / "searches" / "ranks"
    space = {
        "adapter.rank": {"choices": [2, 8, 16]},
        "optimizer.learning_rate": {"low": 1e-5, "high": 1e-2, "log": True},
    }
    trials = []
    for i in range(6):
        steps = 60 if i < 4 else 15
        write_run(search / "runs" / f"trial_{i}", steps=steps, planned=60, rate=0.06 / (i + 1), status=None)
        value = read_series(search / "runs" / f"trial_{i}" / "metrics.jsonl").latest()["loss"]
        trials.append(
            {
                "id": f"trial_{i}",
                "status": "finished" if i < 3 else "running" if i == 3 else "stopped early",
                "parameters": {"adapter.rank": (2, 8, 16)[i % 3], "optimizer.learning_rate": 3.2e-3 / 4**i},
                "step": steps,
                "value": value,
            }
        )
    trials.sort(key=lambda trial: trial["value"])
    plan = {"metric": "loss", "mode": "min", "space": space, "trials": 6, "steps": 60}
    (search / "search.json").write_text(json.dumps(plan))
    (search / "trials.json").write_text(json.dumps({"updated": time.time(), "trials": trials}))
    (root / "weights").mkdir()
    (root / "weights" / "adapter_model.safetensors").write_text("x")
    store = Store(root / "adapters")
    for name, versions in (("docstrings", 3), ("support", 1)):
        for version in range(versions):
            facts = Facts(
                base=Base(path="/models/SmolLM2-135M-Instruct", sha256="0" * 64),
                method="lora",
                stage="sft",
                rank=8,
                targets=("q_proj", "v_proj"),
                metrics={"held_out_bpb": 0.98 - 0.02 * version, "loss": 1.2},
                run="docstrings",
            )
            store.publish(name, root / "weights", facts)
    store.promote("docstrings", 2, "prod")
    return root


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storage path with something of everything."""
    return write_storage(tmp_path_factory.mktemp("storage"))


@pytest.fixture
def client(storage: Path) -> TestClient:
    """The application, in process."""
    return TestClient(build_app(storage))


def test_overview_holds_runs_searches_and_adapters(client: TestClient) -> None:
    body = client.get("/api/overview").json()
    runs = {run["name"]: run for run in body["runs"]}
    assert {name: (run["status"], run["step"], run["steps"]) for name, run in runs.items()} == {
        "docstrings": ("finished", 120, 120),
        "sft-3f9a01bc": ("running", 47, 200),
    }
    assert runs["docstrings"]["model"] == "SmolLM2-135M-Instruct"
    assert runs["docstrings"]["latest"]["held_out_bpb"] == pytest.approx(0.93 + 0.4 * math.exp(-4.8))
    (search,) = body["searches"]
    assert search["counts"] == {"finished": 3, "running": 1, "stopped early": 2}
    assert search["planned"] == 6
    newest = {adapter["name"]: adapter["versions"][0]["reference"] for adapter in body["adapters"]}
    assert newest == {"docstrings": "docstrings@3", "support": "support@1"}
    assert body["adapters"][0]["aliases"] == {"prod": 2}


def test_a_run_has_its_curves_and_counts_what_cannot_be_read(client: TestClient) -> None:
    run = client.get("/api/runs/docstrings").json()
    assert len(run["curves"]["loss"]) == 120
    assert run["curves"]["held_out_bpb"][0][0] == 10
    assert run["unreadable_lines"] == 1
    assert run["recipe"]["training"] == {"steps": 120}
    assert "9999" not in json.dumps(run)


def test_a_search_has_the_curve_of_every_trial(client: TestClient) -> None:
    search = client.get("/api/searches/ranks").json()
    assert [len(trial["curve"]) for trial in search["trials"]] == [trial["step"] for trial in search["trials"]]
    assert search["metric"] == "loss"


@pytest.mark.parametrize(
    "path", ["/api/runs/nope", "/api/searches/..%2f..", "/api/runs/%2e%2e", "/api/runs/..%2fadapters"]
)
def test_unknown_and_hostile_names_are_404(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert "storage" not in answer.text


def test_an_empty_storage_is_an_empty_page(tmp_path: Path) -> None:
    client = TestClient(build_app(tmp_path / "not-yet"))
    body = client.get("/api/overview").json()
    assert (body["runs"], body["searches"], body["adapters"]) == ([], [], [])
    assert client.get("/").status_code == 200


def test_damaged_files_are_shown_and_hide_nothing_else(tmp_path: Path) -> None:
    root = write_storage(tmp_path)
    (root / "runs" / "docstrings" / "state.json").write_text('{"status": ')
    card = root / "adapters" / "support" / "1" / "card.json"
    card.chmod(0o644)
    card.write_text("{}")
    body = TestClient(build_app(root)).get("/api/overview").json()
    assert {run["name"]: run["status"] for run in body["runs"]}["docstrings"] == "unreadable"
    adapters = {adapter["name"]: adapter for adapter in body["adapters"]}
    assert "not a card" in adapters["support"]["problem"]
    assert len(adapters["docstrings"]["versions"]) == 3


def test_a_growing_file_is_read_again_and_long_ones_are_thinned(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "time": 1.7e9, "loss": 2.0, "held_out": {"bpb": 1.0}, "ok": true}\n{"step": 2, "loss"')
    assert read_series(path).curves == {"loss": [(1, 2.0)], "held_out.bpb": [(1, 1.0)]}
    path.write_text("".join(f'{{"step": {i}, "loss": {i}}}\n' for i in range(2000)))
    points = read_series(path).thinned()["loss"]
    assert (len(points), points[0], points[-1]) == (MAX_POINTS, (0, 0), (1999, 1999))
    assert thin([(1, 1), (2, 2)], 2) == [(1, 1), (2, 2)]


class Links(HTMLParser):
    """Collects every attribute that could load something, and checks that tags close."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.extend(value or "" for name, value in attrs if name in ("src", "href", "srcset", "action", "data"))


def test_the_page_loads_nothing_from_outside(client: TestClient) -> None:
    answer = client.get("/")
    assert answer.headers["content-security-policy"] == POLICY
    assert "connect-src 'self'" in POLICY
    links = Links()
    links.feed(answer.text)
    assert links.found
    assert all(link.startswith(("#", "data:")) for link in links.found), links.found
    outside = set(re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}[^\s\"']*", answer.text))
    assert outside == {"http://www.w3.org/2000/svg"}, "the name space of SVG is a name, nothing is loaded from it"
    assert not re.search(r"@import|url\(|innerHTML|eval\(", answer.text)
    assert not re.search(r"(style\.css|\w+\.js) \*/", assembled("page.html"))
    for path in ("/docs", "/redoc", "/openapi.json"):
        assert client.get(path).status_code == 404


@pytest.fixture
def address(storage: Path) -> Iterator[str]:
    """The dashboard on a real socket."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(build_app(storage), host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}/"
    server.should_exit = True
    thread.join(timeout=10)


def test_a_browser_shows_runs_trials_and_adapters(address: str, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium is installed")
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    more = "--disable-component-update --disable-sync --virtual-time-budget=4000 --dump-dom --window-size=1400,1800"
    command = [browser, *flags.split(), *more.split(), f"--user-data-dir={tmp_path}", f"{address}?run=docstrings"]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    for text in (
        "sft-3f9a01bc",
        "trial_5",
        "stopped early",
        "prod → 2",
        "Gradient norm",
        "Rank of every module after step 120",
        "model.layers.3.mlp.down_proj: 4",
        "cannot be read: 1",
        "live, ",
    ):
        assert text in dom, text
    assert dom.count('class="plot"') == 6
    assert 'id="live" role="status" class=""' in dom
