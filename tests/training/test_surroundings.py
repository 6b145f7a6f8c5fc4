"""What surrounds the loop: the run's folder, its state, progress, memory, the network interface."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path

import psutil
import pytest
import torch
from rich.console import Console

from cairn.config.load import build, with_overrides
from cairn.config.recipe import Recipe
from cairn.errors import CairnError, StorageError, UserError
from cairn.training.folder import ADAPTER, RECIPE, claim
from cairn.training.interface import VARIABLES, bind_to, interface_of
from cairn.training.memory import peak_memory_bytes
from cairn.training.progress import figures, watched
from cairn.training.run import total_steps
from cairn.training.state import FINISHED, RUNNING, read_state, write_state

pytestmark = pytest.mark.unit


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """A recipe whose model and data need not be there."""
    return build(
        {
            "model": {"path": "model"},
            "data": {"train": ["x.jsonl"]},
            "stage": "sft",
            "training": {"steps": 10},
            "storage": {"path": str(tmp_path), "run": "mine"},
        }
    )


def test_a_folder_belongs_to_one_recipe(recipe: Recipe) -> None:
    assert claim(recipe) is None
    assert (recipe.run_path / RECIPE).exists()
    assert claim(with_overrides(recipe, {"training.workers": 2, "training.log_every": 5})) is None
    changed = with_overrides(recipe, {"training.steps": 11, "adapter.rank": 2})
    with pytest.raises(UserError, match=r"changed: adapter\.rank, training\.steps") as refused:
        claim(changed)
    assert "storage.run" in refused.value.next_step


def test_steps_come_from_steps_or_epochs(recipe: Recipe) -> None:
    assert total_steps(recipe, 1000) == 10
    by_epochs = build({**recipe.plain(), "training": {"epochs": 2.5, "global_batch": 8}})
    assert total_steps(by_epochs, 100) == 32


def test_a_finished_run_is_returned_as_it_is(recipe: Recipe) -> None:
    claim(recipe)
    (recipe.run_path / ADAPTER).mkdir()
    write_state(recipe.run_path, FINISHED, step=10, steps=10, metrics={"loss": 1.5, "broken": None})
    result = claim(recipe)
    assert result is not None
    assert (result.steps, result.metrics, result.adapter_path) == (10, {"loss": 1.5}, recipe.run_path / ADAPTER)


def test_a_folder_that_cannot_be_written(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where a folder should be")
    with pytest.raises(StorageError, match="cannot be written"):
        claim(recipe)


def test_state_keeps_what_is_not_given_and_is_never_half_read(tmp_path: Path) -> None:
    assert read_state(tmp_path) == {}
    write_state(tmp_path, RUNNING, step=0, steps=9)
    ended = threading.Event()

    def rewrite() -> None:
        step = 0
        while not ended.is_set():
            step += 1
            write_state(tmp_path, RUNNING, step=step, metrics={"loss": 1.0 / step})

    writer = threading.Thread(target=rewrite)
    writer.start()
    seen = [read_state(tmp_path)]
    while len(seen) < 300 or seen[-1]["step"] == seen[0]["step"]:
        seen.append(read_state(tmp_path))
    ended.set()
    writer.join()
    assert all(state["steps"] == 9 and state["status"] == RUNNING for state in seen)
    assert seen[-1]["step"] > seen[0]["step"]


def test_progress_in_a_log_file_is_a_line_each_tenth(tmp_path: Path) -> None:
    text = io.StringIO()
    metrics = {"loss": 2.5, "tokens_per_second": 1204.4, "held_out_bpb": 1.25}
    write_state(tmp_path, RUNNING, step=7, steps=10, metrics=metrics)
    with watched(tmp_path, "train mine", console=Console(file=text, width=200)):
        pass
    assert text.getvalue() == "train mine: 7 of 10 · loss 2.500 · 1,204 tok/s · held-out 1.250 bits/byte\n"
    assert figures({}) == "waiting"
    assert figures({"status": FINISHED, "metrics": metrics}) == FINISHED


def test_progress_on_a_terminal_is_a_bar(tmp_path: Path) -> None:
    text = io.StringIO()
    write_state(tmp_path, RUNNING, step=7, steps=10, metrics={"loss": 2.5})
    with watched(tmp_path, "train mine", console=Console(file=text, width=120, force_terminal=True)):
        pass
    assert "7/10" in text.getvalue()
    assert "loss 2.500" in text.getvalue()


def test_the_interface_of_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, addresses in psutil.net_if_addrs().items():
        for found in addresses:
            if found.family.name == "AF_INET":
                assert interface_of(found.address) == name
    assert interface_of("127.0.0.1") == "lo"
    with pytest.raises(CairnError, match=r"no network interface has the address 203\.0\.113\.7.*127\.0\.0\.1"):
        interface_of("203.0.113.7")
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    bind_to("127.0.0.1")
    assert [os.environ[variable] for variable in VARIABLES] == ["lo", "lo"]
    monkeypatch.setenv(VARIABLES[0], "eth7")
    bind_to("127.0.0.1")
    assert os.environ[VARIABLES[0]] == "eth7"
    for variable in VARIABLES:
        del os.environ[variable]


def test_peak_memory_counts_bytes() -> None:
    peak = peak_memory_bytes(torch.device("cpu"))
    assert 0.9 * psutil.Process().memory_info().rss <= peak <= psutil.virtual_memory().total
