"""What lies under a storage path, as plain data for the page. Reads files only: no cluster, no database.

runs/<run>/            recipe.json, state.json, metrics.jsonl, ranks.jsonl
searches/<search>/     search.json, trials.json, runs/<trial>/metrics.jsonl
adapters/<name>/…      the store
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

from cairn.errors import CairnError, UserError, did_you_mean
from cairn.serving.dashboard.ranks import rank_maps
from cairn.serving.dashboard.series import Series, read_series, thin
from cairn.store.card import Card
from cairn.store.store import Store

SPARK_POINTS = 60
SILENT_AFTER_S = 120.0
WATCHED = ("recipe.json", "state.json", "metrics.jsonl")
UNDER_WAY = ("starting", "running")
HEADLINE = ("loss", "train_loss")


def overview(storage: Path) -> dict[str, Any]:
    """Everything in short: the newest run and search first."""
    runs = [run_summary(path) for path in _folders(storage / "runs")]
    searches = [search_summary(path) for path in _folders(storage / "searches")]
    return {
        "storage": str(storage),
        "time": time.time(),
        "runs": sorted(runs, key=lambda run: -run["updated"]),
        "searches": sorted(searches, key=lambda search: -search["updated"]),
        "adapters": adapters(storage / "adapters"),
    }


def run_detail(storage: Path, name: str) -> dict[str, Any]:
    """One run with its curves and its recipe; UserError for an unknown name."""
    path = _member(storage / "runs", name)
    series = read_series(path / "metrics.jsonl")
    return {
        **run_summary(path),
        "curves": series.thinned(),
        "maps": rank_maps(path / "ranks.jsonl"),
        "unreadable_lines": series.unreadable_lines,
        "recipe": _json(path / "recipe.json"),
    }


def search_detail(storage: Path, name: str) -> dict[str, Any]:
    """One search with its ranked trials and the curve of each; UserError for an unknown name."""
    path = _member(storage / "searches", name)
    summary = search_summary(path)
    for trial in summary["trials"]:
        series = read_series(path / "runs" / str(trial["id"]) / "metrics.jsonl")
        trial["curve"] = thin(series.curves.get(summary["metric"], []), 300)
    return summary


def run_summary(path: Path) -> dict[str, Any]:
    """Name, status, progress, latest values and a small loss curve of a run folder."""
    series = read_series(path / "metrics.jsonl")
    recipe, state = _json(path / "recipe.json"), _json(path / "state.json")
    updated = max((file.stat().st_mtime for name in WATCHED if (file := path / name).exists()), default=0.0)
    steps = state.get("steps") or (recipe.get("training") or {}).get("steps")
    headline = next((name for name in HEADLINE if name in series.curves), None)
    return {
        "name": path.name,
        "status": _run_status(state, series, steps, updated),
        "updated": updated,
        "step": series.step,
        "steps": steps,
        "stage": (recipe.get("stage") or {}).get("name", ""),
        "method": (recipe.get("adapter") or {}).get("name", ""),
        "model": Path(str((recipe.get("model") or {}).get("path", ""))).name,
        "latest": series.latest(),
        "spark": thin(series.curves[headline], SPARK_POINTS) if headline else [],
    }


def _run_status(state: dict[str, Any], series: Series, steps: int | None, updated: float) -> str:
    """What the run says of itself, else what its files show."""
    stated = state.get("status")
    if isinstance(stated, str) and stated not in UNDER_WAY:
        return stated
    if steps and series.step >= steps and stated is None:
        return "finished"
    return (stated or "running") if time.time() - updated < SILENT_AFTER_S else "silent"


def search_summary(path: Path) -> dict[str, Any]:
    """What is searched and the ranked trials."""
    search, table = _json(path / "search.json"), _json(path / "trials.json")
    trials = table.get("trials", [])
    counts: dict[str, int] = {}
    for trial in trials:
        counts[trial["status"]] = counts.get(trial["status"], 0) + 1
    return {
        "name": path.name,
        "updated": table.get("updated", path.stat().st_mtime),
        "metric": search.get("metric", "loss"),
        "mode": search.get("mode", "min"),
        "space": search.get("space", {}),
        "planned": search.get("trials", len(trials)),
        "steps": search.get("steps"),
        "counts": counts,
        "trials": trials,
    }


def adapters(root: Path) -> list[dict[str, Any]]:
    """Every name of the store with its versions, newest first; a damaged one with what is wrong."""
    store = Store(root)
    found: list[dict[str, Any]] = []
    for name in store.names():
        try:
            versions = [_card(adapter.card) for adapter in reversed(store.versions(name))]
            found.append({"name": name, "versions": versions, "aliases": store.aliases(name)})
        except CairnError as error:
            found.append({"name": name, "versions": [], "aliases": {}, "problem": str(error)})
    return found


def _card(card: Card) -> dict[str, Any]:
    return {**card.model_dump(mode="json"), "reference": card.reference, "file_count": len(card.files)}


def _folders(parent: Path) -> list[Path]:
    return sorted(path for path in parent.iterdir() if path.is_dir()) if parent.is_dir() else []


def _member(parent: Path, name: str) -> Path:
    """The folder `name` of `parent`, looked up in its listing, so that no path can escape."""
    found = {path.name: path for path in _folders(parent)}
    if name not in found:
        raise UserError(f"there is no '{name[:80]}'", where=str(parent), next_step=did_you_mean(name, found))
    return found[name]


def _json(path: Path) -> dict[str, Any]:
    """A JSON object; nothing when it is not there yet; its status tells when it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        return {}
    except msgspec.MsgspecError as error:
        return {"status": "unreadable", "problem": f"{path.name}: {error}"}
