"""A file of the user's own, named in the recipe, is a plugin like any other and travels with the recipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.training.runs import recipe_for, run_local

from cairn.config.load import build, with_overrides
from cairn.config.recipe import Recipe
from cairn.errors import RecipeError
from cairn.plugins import CALLBACKS, SCHEDULES, TRACKERS
from cairn.training.folder import RECIPE

CALLBACK = '''
from __future__ import annotations
from dataclasses import dataclass
from pydantic import Field
from cairn.config.section import Section
from cairn.training.callback import Callback, End

@dataclass
class Seen:
    texts: list[str]

class Watcher(Callback):
    """Counts what it is shown, and ends the run."""

    class Config(Section):
        last: int = Field(4, description="the step to end after")

    def start(self, run, *, resumed_at):
        self.seen = Seen([f"resumed at {resumed_at}"])
        self.count = getattr(self, "count", 0)

    def before_step(self, run, step, batches):
        self.count += len(batches)

    def after_step(self, run, step, figures):
        return {"micro_batches": self.count, "twice_the_loss": 2 * figures["loss"], "remark": f"step {step}"}

    def decide(self, run, step, figures):
        assert figures["micro_batches"] == self.count
        return End("it was enough", finished=True) if step == self.config.last else None

    def state(self):
        return {"count": self.count}

    def restore(self, state):
        self.count = state["count"]

    def finish(self, run, adapter):
        (adapter / "note.txt").write_text("by a callback")
        return {"note": self.count}
'''
TRACKER = '''
from cairn.training.tracker import Tracker

class Lines(Tracker):
    """One file."""

    def open(self, run, *, resumed_at):
        self.path = run.recipe.run_path / "own.txt"

    def write(self, step, values):
        if step == 2:
            raise OSError("the service is down")
        self.path.open("a").write(f"{step} {values['loss']:.3f}\\n")

    def write_text(self, step, name, text):
        self.path.open("a").write(f"{name}: {text}\\n")
'''
SCHEDULE = """
from cairn.schedules.base import Schedule

class Half(Schedule):
    def factor(self, step, total_steps):
        return 0.5
"""
STAGE = """
from dataclasses import replace
from cairn.records import Conversation
from cairn.stages.base import Stage
from cairn.stages._next_token import next_token_loss

class Twice(Stage):
    record = Conversation

    def loss(self, batch, models):
        output = next_token_loss(batch, models)
        return replace(output, total=2 * output.total)
"""
VALUES: dict[str, Any] = {"model": {"path": "m"}, "data": {"train": ["x.jsonl"]}, "stage": "sft"}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the three files in it."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("watcher", CALLBACK), ("lines", TRACKER), ("half", SCHEDULE)):
        Path(f"{name}.py").write_text(text)
    return tmp_path


def recipe_with(callback: Any) -> Recipe:
    return build({**VALUES, "training": {"callbacks": [callback]}})


@pytest.mark.unit
def test_the_text_travels_with_the_recipe(files: Path) -> None:
    recipe = recipe_with({"name": "./watcher.py", "last": 7})
    (choice,) = recipe.training.callbacks
    Path("watcher.py").unlink()
    sent = json.loads(json.dumps(recipe.plain()))
    there = build(sent)
    assert there.plain() == recipe.plain()
    assert there.fingerprint() == recipe.fingerprint()
    callback = CALLBACKS.make(there.training.callbacks[0])
    assert (type(callback).__name__, callback.name, callback.config.last) == ("Watcher", "watcher", 7)
    assert type(CALLBACKS.make(choice)) is type(callback)


@pytest.mark.unit
def test_what_the_file_says_counts_in_the_fingerprint_where_it_may_change_the_run(files: Path) -> None:
    before = recipe_with("./watcher.py").fingerprint()
    assert before != build(VALUES).fingerprint()
    Path("watcher.py").write_text(CALLBACK.replace("2 *", "3 *"))
    assert recipe_with("./watcher.py").fingerprint() != before
    tracked = build({**VALUES, "training": {"trackers": ["jsonl", "./lines.py"]}})
    assert tracked.fingerprint() == build(VALUES).fingerprint()


@pytest.mark.unit
def test_a_plugin_section_takes_a_file_too(files: Path) -> None:
    recipe = build({**VALUES, "schedule": "./half.py"})
    assert SCHEDULES.make(recipe.schedule).factor(3, 10) == 0.5
    assert with_overrides(recipe, {"training.steps": 3}).schedule.source == SCHEDULE


@pytest.mark.unit
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "the file cannot be read"),
        ("import no_such_package", "the file cannot be run (ModuleNotFoundError: No module named 'no_such_package')"),
        ("x = 1", "must define exactly one Callback, it defines 0"),
        ("def f(:", "the file cannot be run (SyntaxError"),
    ],
)
def test_a_file_that_is_no_plugin_is_a_problem_of_the_recipe(files: Path, text: str | None, problem: str) -> None:
    if text is not None:
        Path("wrong.py").write_text(text)
    with pytest.raises(RecipeError) as refused:
        recipe_with("./wrong.py")
    (found,) = refused.value.problems
    assert found.path == "training.callbacks.0.name"
    assert problem in found.message
    assert found.advice


@pytest.mark.unit
def test_lists_of_plugins_are_checked_as_sections_are(files: Path) -> None:
    wrong = [{"name": "./watcher.py", "lst": 3}, {"last": 3}, 5]
    with pytest.raises(RecipeError) as refused:
        build({**VALUES, "training": {"callbacks": wrong, "trackers": "jsonl"}})
    assert {problem.path: problem.advice for problem in refused.value.problems} == {
        "training.trackers": "write trackers: [jsonl]",
        "training.callbacks.0.lst": "did you mean 'last'?",
        "training.callbacks.1.name": f"choose one of: {', '.join(CALLBACKS.names())}",
        "training.callbacks.2": "write training.callbacks.2: {name: …}",
    }
    assert [choice.name for choice in build(VALUES).training.trackers] == ["jsonl", "tensorboard"]
    assert "jsonl" in TRACKERS.names()


@pytest.mark.slow
@pytest.mark.usefixtures("group")
def test_a_stage_of_ones_own(files: Path, tiny_path: Path) -> None:
    """From the kind of its records to the run's name."""
    Path("twice.py").write_text(STAGE)
    recipes = [recipe_for(files, tiny_path, "sft", stage={"name": name}, storage={"run": None}, training={"steps": 2})
               for name in ("./twice.py", "sft")]  # fmt: skip
    twice, once = (run_local(recipe) for recipe in recipes)
    assert recipes[0].run_path.name.startswith("twice-")
    assert twice[0]["loss"] == pytest.approx(2 * once[0]["loss"], rel=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("group")
def test_every_hook_in_a_run_that_is_interrupted(
    files: Path, tiny_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recipe = recipe_for(
        files,
        tiny_path,
        training={
            "callbacks": [{"name": "./watcher.py", "last": 5}],
            "trackers": ["jsonl", "./lines.py"],
            "checkpoint_every": 2,
        },
    )
    run_local(recipe, stop_after=3)
    lines = run_local(recipe)
    assert [line["micro_batches"] for line in lines] == [2, 4, 6, 8, 10]
    assert all(line["twice_the_loss"] == 2 * line["loss"] for line in lines)
    assert not any("remark" in line for line in lines)
    adapter = recipe.run_path / "adapter"
    assert (adapter / "note.txt").read_text() == "by a callback"
    assert json.loads((adapter / "run.json").read_text())["note"] == 10
    assert json.loads((recipe.run_path / RECIPE).read_text())["training"]["callbacks"][0]["source"] == CALLBACK
    state = json.loads((recipe.run_path / "state.json").read_text())
    assert state["ended"] == "it was enough"
    written = (recipe.run_path / "own.txt").read_text().splitlines()
    assert [line for line in written if line.startswith("remark")] == [f"remark: step {s}" for s in (1, 2, 3, 3, 4, 5)]
    assert [line.split()[0] for line in written if line[0].isdigit()] == ["1", "3", "3", "4", "5"]
    assert state["tracker_failures"] == {"./lines.py": 1}
    assert [record.message for record in caplog.records if "lines.py" in record.message] == [
        "the tracker './lines.py' failed (OSError: the service is down); the run goes on"
    ]
