"""The command line: fast help, messages instead of tracebacks, the right exit codes."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from cairn.cli.failures import explain
from cairn.cli.main import run
from cairn.errors import CairnError, DataError, UserError

pytestmark = pytest.mark.unit

VERBS = (
    "quickstart", "sample", "prepare", "train", "search", "evaluate", "serve", "dashboard", "adapters", "export",
    "submit", "doctor",
)  # fmt: skip


def _child_seconds() -> float:
    """CPU seconds of finished children: what a busy machine does not stretch."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_answers_in_under_a_second_and_lists_every_verb() -> None:
    seconds = []
    for _ in range(3):
        begin = _child_seconds()
        done = subprocess.run([sys.executable, "-m", "cairn", "--help"], capture_output=True, text=True, check=True)
        seconds.append(_child_seconds() - begin)
    assert not [verb for verb in VERBS if verb not in done.stdout]
    assert min(seconds) < 1.0, seconds


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "adapters"])
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([verb, "--help"]) == 0
    assert f"cairn {verb}" in capsys.readouterr().out


def test_an_unknown_verb_is_the_users_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trian", "x.yaml"]) == 2
    assert "trian" in capsys.readouterr().err


def test_a_missing_recipe_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "nowhere.yaml"]) == 2
    text = capsys.readouterr().err
    assert "nowhere.yaml" in text
    assert "→ give the path" in text
    assert "Traceback" not in text


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "nowhere.yaml", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


FIVE_MISTAKES = {
    "model": {"pth": "x"},
    "data": {"train": ["a.jsonl"], "sequence_length": "long"},
    "stage": "stf",
    "training": {"workers": 0},
}


def test_five_mistakes_are_five_messages_before_ray_starts(tmp_path: Path) -> None:
    recipe = tmp_path / "bad.yaml"
    recipe.write_text(json.dumps(FIVE_MISTAKES))
    code = (
        "import sys\nfrom cairn.cli.main import run\n"
        f"code = run(['train', {str(recipe)!r}])\n"
        "print('ray' in sys.modules)\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout.strip() == "False"
    assert "5 problems in the recipe" in done.stderr
    for expected in (
        """model.pth = "x": there is no such key\n  → did you mean 'path'?""",
        """model.path = "(missing)": this key is needed""",
        """data.sequence_length = "long\"""",
        """stage.name = "stf": there is no stage of that name\n  → did you mean 'sft'?""",
        """training.workers = 0""",
    ):
        assert expected in done.stderr


@pytest.mark.parametrize(
    ("error", "code", "part"),
    [
        (UserError("bad", next_step="mend it"), 2, "bad\n  → mend it"),
        (CairnError("broken"), 1, "broken"),
        (OSError(28, "No space left on device"), 1, "the disk is full"),
        (ValueError("odd"), 1, "unexpected: ValueError: odd"),
    ],
)
def test_every_failure_has_a_message_and_a_code(error: Exception, code: int, part: str) -> None:
    failure = explain(error)
    assert failure.exit_code == code
    assert part in failure.message


def test_the_cause_is_found_inside_what_ray_wraps() -> None:
    class WorkerGroupError(Exception):
        def __init__(self, failures: dict[int, Exception]) -> None:
            super().__init__("2 workers died")
            self.worker_failures = failures

    outer = RuntimeError("training failed")
    outer.__cause__ = WorkerGroupError({0: RuntimeError("first"), 1: DataError("line 7 is broken")})
    failure = explain(outer)
    assert failure.exit_code == 2
    assert failure.message == "line 7 is broken"
