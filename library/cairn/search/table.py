"""What a search writes down: `search.json`, the plan; `trials.json`, the ranked trials, replaced whenever one moves.

Both are plain files, so the dashboard, a terminal and a resumed search read the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray.tune
from rich.console import Console

from cairn.config.recipe import Recipe
from cairn.errors import UserError
from cairn.search.trial import OBJECTIVE, WORST, trial_name
from cairn.store.durable import make_directory, replace_file

PLAN_FILE = "search.json"
TRIALS_FILE = "trials.json"
STOPPED = "stopped early"
OVER = ("finished", STOPPED)
STATUSES = {"PENDING": "waiting", "RUNNING": "running", "PAUSED": "paused", "ERROR": "failed"}


def write_plan(folder: Path, recipe: Recipe, draws: Sequence[Mapping[str, Any]]) -> None:
    """Record the plan of a new search, or check that an old one is the same; UserError when it is not."""
    search = recipe.search.model_dump(mode="json")
    plan = {
        "fingerprint": recipe.fingerprint(),
        "metric": search["metric"],
        "mode": search["mode"],
        "space": search["space"],
        "trials": search["trials"],
        "steps": recipe.training.steps,
        "draws": list(draws),
        "recipe": recipe.plain(),
    }
    found = read_plan(folder)
    if found is None:
        make_directory(folder)
        replace_file(folder / PLAN_FILE, json.dumps(plan, indent=1))
        return
    changed = [
        key for key in ("fingerprint", "metric", "mode", "draws") if found.get(key) != json.loads(json.dumps(plan[key]))
    ]
    if changed:
        raise UserError(
            f"there is a search of this name with another {' and '.join(changed)}",
            where=str(folder),
            next_step="set storage.run to another name, or restore the recipe of that search",
        )


def read_plan(folder: Path) -> dict[str, Any] | None:
    """The plan, or None before there is one."""
    path = folder / PLAN_FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def read_trials(folder: Path) -> list[dict[str, Any]]:
    """The ranked trials."""
    return json.loads((folder / TRIALS_FILE).read_text(encoding="utf-8"))["trials"]


def flat_rows(trials: Iterable[Mapping[str, Any]], metric: str) -> list[dict[str, Any]]:
    """The table as a person reads it: rank, trial, status, step, the metric, and every searched key."""
    return [
        {
            "rank": place,
            "trial": trial["id"],
            "status": trial["status"],
            "step": trial["step"],
            metric: trial["value"],
            **trial["parameters"],
        }
        for place, trial in enumerate(trials, start=1)
    ]


class TrialTable(ray.tune.Callback):
    """Keeps `trials.json` up to date from Tune's loop, and says in one line what became of a trial.

    It begins with what an earlier start left; a trial among `stopped` is over even if the table did not learn of it.
    """

    def __init__(
        self, folder: Path, recipe: Recipe, draws: Sequence[Mapping[str, Any]], *, stopped: Iterable[str]
    ) -> None:
        self.folder, self.mode, self.metric = folder, recipe.search.mode, recipe.search.metric
        self.draws: list[dict[str, Any]] = [
            {"number": number, "changes": dict(changes)} for number, changes in enumerate(draws)
        ]
        self.rows = {trial_name(drawn["number"]): _waiting(drawn) for drawn in self.draws}
        if (folder / TRIALS_FILE).is_file():
            self.rows |= {row["id"]: row for row in read_trials(folder)}
        for name in stopped:
            self.rows[name] = {**self.rows[name], "status": STOPPED}
        self.written: list[dict[str, Any]] = []
        self._write()

    def pending(self) -> list[dict[str, Any]]:
        """Number and changes of the trials that are not over."""
        return [drawn for drawn in self.draws if self.rows[trial_name(drawn["number"])]["status"] not in OVER]

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """After each round of Tune's loop."""
        self._update(trials)

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        """After the last."""
        self._update(trials)

    def _update(self, trials: list[Any]) -> None:
        for trial in trials:
            name = trial_name(trial.config["trial"]["number"])
            self.rows[name] = _row(trial, self.rows[name])
        self._write()

    def _write(self) -> None:
        rows = ranked(self.rows.values(), self.mode)
        if rows != self.written:
            replace_file(self.folder / TRIALS_FILE, json.dumps({"updated": time.time(), "trials": rows}, indent=1))
            self._say(rows)
            self.written = rows

    def _say(self, rows: list[dict[str, Any]]) -> None:
        before = {row["id"]: row["status"] for row in self.written}
        console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        for row in rows:
            if row["id"] in before and row["status"] != before[row["id"]]:
                value = "" if row["value"] is None else f", {self.metric} {row['value']:.4f}"
                keys = ", ".join(f"{key}={_short(value)}" for key, value in row["parameters"].items())
                console.print(f"{row['id']} {row['status']} at step {row['step']}{value} ({keys})")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _waiting(drawn: Mapping[str, Any]) -> dict[str, Any]:
    name = trial_name(drawn["number"])
    return {"id": name, "status": "waiting", "parameters": drawn["changes"], "step": 0, "value": None}


def _row(trial: Any, before: Mapping[str, Any]) -> dict[str, Any]:
    """One Tune trial as plain data, over what was known `before`. `value` is null where it was not a number."""
    last = trial.last_result or {}
    row = {name: value for name, value in before.items() if name != "problem"}
    row["status"] = STATUSES.get(trial.status) or ("finished" if last.get("finished") else STOPPED)
    if OBJECTIVE in last:
        row["step"] = last["step"]
        row["value"] = last[OBJECTIVE] if abs(last[OBJECTIVE]) < WORST else None
    return {**row, "problem": _problem(trial)} if row["status"] == "failed" else row


def _problem(trial: Any) -> str:
    path = trial.error_file
    lines = Path(path).read_text(encoding="utf-8").strip().splitlines() if path and Path(path).is_file() else []
    return lines[-1] if lines else "unknown"


def ranked(rows: Iterable[dict[str, Any]], mode: str) -> list[dict[str, Any]]:
    """Best value first, trials without one last, by name among equals."""
    sign = 1.0 if mode == "min" else -1.0
    return sorted(rows, key=lambda row: (row["value"] is None, sign * (row["value"] or 0.0), row["id"]))
