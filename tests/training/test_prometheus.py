"""A run's figures at the endpoint that a Prometheus server scrapes."""

from __future__ import annotations

import re
import threading
import urllib.request
from pathlib import Path

import pytest
import ray
from tests.training.runs import recipe_for

from cairn.training.trackers.jsonl import read_metrics
from cairn.training.trainer import train

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]

UNTIL = '''
from pathlib import Path
from pydantic import Field
from cairn.config.section import Section
from cairn.training.callback import Callback, End

class Until(Callback):
    """Ends the run when a file is there."""

    class Config(Section):
        file: str = Field(description="the file")

    def decide(self, run, step, figures):
        return End("it was seen", finished=True) if Path(self.config.file).exists() else None
'''


def scrape(ended: threading.Event, seen: Path) -> None:
    """Look at the node's endpoint until the loss is there, then write down what it said."""
    (node,) = ray.nodes()
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    while not ended.wait(0.5):
        text = urllib.request.urlopen(url, timeout=10).read().decode()
        if "ray_cairn_loss{" in text:
            seen.write_text(text)
            return


def test_the_figures_of_a_run_are_scraped_from_the_node(tmp_path: Path, tiny_path: Path) -> None:
    """The run goes on until its loss was seen there; the user's file that ends it travelled to the worker."""
    (tmp_path / "until.py").write_text(UNTIL)
    seen, ended = tmp_path / "seen", threading.Event()
    recipe = recipe_for(
        tmp_path,
        tiny_path,
        training={
            "steps": 100_000,
            "trackers": ["jsonl", "prometheus"],
            "callbacks": [{"name": str(tmp_path / "until.py"), "file": str(seen)}],
        },
    )
    scraper = threading.Thread(target=scrape, args=(ended, seen))
    scraper.start()
    try:
        train(recipe)
    finally:
        ended.set()
        scraper.join()
    found = re.search(r'^ray_cairn_loss\{[^}]*run="pretrain-run"[^}]*\} (\S+)$', seen.read_text(), re.MULTILINE)
    assert found is not None
    assert any(line["loss"] == pytest.approx(float(found[1])) for line in read_metrics(recipe.run_path))
