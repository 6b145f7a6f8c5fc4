"""The page of a comparison: one file without outside network, which a browser shows from the disk as it is."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cairn.comparison.compare import Comparison, Entry
from cairn.comparison.figures import FIGURES, interval
from cairn.serving.dashboard.comparison import page_of, write_page

pytestmark = pytest.mark.unit

NASTY = "</script><script>document.title = 'broken'</script> <b>bold</b> “quoted” \\ \u2028"
SUBSETS = ("Github", "Wikipedia (en)", "StackExchange")


def entry(folder: Path, name: str, stage: str, number: int) -> Entry:
    """A run, its folder with curves in it; a reward model where the stage says so; the base without a stage."""
    accuracy, speaks = 0.58 + 0.05 * math.sin(2.4 * number) + 0.03 * number, stage != "reward"
    figures: dict[str, float | None] = dict.fromkeys(FIGURES)
    figures |= {"accuracy": accuracy}
    if speaks:
        figures |= {"accuracy_summed": accuracy - 0.06, "answer_tokens": 41.5 + 6 * number, "ended": 0.97, "bpb": 0.9}
    if stage:
        figures |= {"accuracy_reward": accuracy + 0.04, "margin": 2.1 * number, "steps": 100, "tokens": 412_345}
        figures |= {"seconds": 310.0 + 40 * number, "peak_memory_bytes": 2.1e9}
    if stage and speaks:
        figures |= {"kl_per_token": 0.004 * number**1.5, "kl_per_answer": 0.2 * number**1.5}
    lines = []
    for step in range(1, 101):
        line = {"step": step, "loss": 0.69 * math.exp(-step * 0.01 * number), "accuracy": 0.5 + 0.3 * step / 100}
        lines.append(line | ({"held_out_accuracy": 0.5 + 0.002 * step} if step % 25 == 0 else {}))
    (folder / name).mkdir()
    (folder / name / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Entry(
        name=name,
        stage=stage,
        method="lora" if stage else "",
        folder=str(folder / name),
        figures=figures,
        interval=interval(accuracy, 256),
        bits_per_byte={subset: 0.8 + 0.1 * i - 0.01 * number for i, subset in enumerate(SUBSETS)} if speaks else {},
        answers=(f"The answer of {name}.", NASTY) if speaks else (),
    )


@pytest.fixture
def comparison(tmp_path: Path) -> dict[str, Any]:
    """The content of a `comparison.json`."""
    stages = ("dpo", "simpo", "sft", "orpo", "kto", "cpo", "reward")
    runs = tuple(entry(tmp_path, f"docstrings-{stage}", stage, 7 - i) for i, stage in enumerate(stages))
    yardstick = {
        "pairs": 256,
        "pair_files": ["/data/preferences_heldout.jsonl"],
        "left_out": {"longer than a row": 3},
        "prompts": 32,
        "max_tokens": 128,
        "temperature": 1.0,
        "documents": 84,
        "document_files": ["/data/quick.jsonl.zst"],
        "window": 768,
        "precision": "fp32",
    }
    base = entry(tmp_path, "SmolLM2-135M-Instruct", "", 0)
    return Comparison("accuracy", runs, base, yardstick, ("Write a docstring.\ndef add(a, b):", NASTY)).plain()


def test_the_page_holds_everything_and_loads_nothing(comparison: dict[str, Any]) -> None:
    page = page_of(comparison)
    outside = set(re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}[^\s\"']*", page))
    assert outside == {"http://www.w3.org/2000/svg"}, "the name space of SVG is a name, nothing is loaded from it"
    assert not re.search(r"@import|url\(|innerHTML|eval\(|(style\.css|\w+\.js) \*/", page)
    assert "default-src 'none'" in page
    held = re.search(r'<script id="comparison" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert held is not None
    told = json.loads(held[1])
    assert told["prompts"][1] == NASTY
    assert told["curves"]["docstrings-dpo"]["held_out_accuracy"][-1] == [100, 0.7]
    assert {key: value for key, value in told.items() if key != "curves"} == json.loads(json.dumps(comparison))


def shown(page: Path, profile: Path) -> str:
    """What a browser makes of the file."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium is installed")
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync"
    more = "--disable-component-update --virtual-time-budget=4000 --dump-dom --window-size=1400,1800"
    command = [browser, *flags.split(), *more.split(), f"--user-data-dir={profile}", page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout


def test_a_browser_shows_ranking_plots_curves_and_answers(comparison: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    dom = shown(write_page(comparison, tmp_path / "page"), tmp_path / "profile")
    body = dom.partition('<script id="comparison"')[0]
    for text in ("docstrings-simpo", "SmolLM2-135M-Instruct (base)", "Accuracy and distance", "The answer of", "GiB"):
        assert text in body, text
    assert "<title>Cairn: comparison</title>" in dom
    assert "&lt;b&gt;bold&lt;/b&gt;" in body
    assert body.count('class="plot"') == 5 + 3
    assert body.count('class="reply"') == 2 * 7
    assert "256" in body
    assert "3 longer than a row" in body
