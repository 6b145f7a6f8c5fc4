"""A run's folder: who may write into it, and what it holds when the run is over.

    recipe.json   metrics.jsonl   tensorboard/   state.json   checkpoints/step_…/   adapter/

A folder belongs to one recipe: the same recipe goes on in it, another is refused, whatever the name.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn.config.recipe import PLUGIN_SECTIONS, UNPRINTED_TRAINING_KEYS, Recipe
from cairn.errors import StorageError, UserError
from cairn.store.card import Base, Facts
from cairn.store.store import Store
from cairn.training.state import FINISHED, STARTING, read_state, replace_text, write_state

RECIPE, CHECKPOINTS, ADAPTER, RUN = "recipe.json", "checkpoints", "adapter", "run.json"


@dataclass(frozen=True)
class TrainingResult:
    """A run that ended. `adapter_path` is what the store publishes; `published` is the reference it got, if any.

    Where `finished` is False the run paused (`training.max_seconds`) after `steps` steps, and has no adapter yet.
    """

    run_path: Path
    adapter_path: Path
    metrics: dict[str, Any]
    steps: int
    published: str | None = None
    finished: bool = True


def claim(recipe: Recipe) -> TrainingResult | None:
    """Take the run's folder for `recipe`; the result when it is finished already.

    UserError when the folder is of another recipe, StorageError when it cannot be written.
    """
    folder, fingerprint = recipe.run_path, recipe.fingerprint()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        state = read_state(folder)
        if state and state["fingerprint"] != fingerprint:
            raise _other_recipe(recipe)
        if state.get("status") == FINISHED and (folder / ADAPTER).is_dir():
            return result_of(recipe)
        replace_text(folder / RECIPE, json.dumps(recipe.plain(), indent=1))
        write_state(folder, STARTING, fingerprint=fingerprint, started=time.time(), error=None, ended=None)
    except OSError as error:
        raise StorageError(
            f"the run's folder cannot be written ({error.strerror})",
            where=str(folder),
            next_step="set storage.path to a folder that you may write to and that has space",
        ) from error
    return None


def result_of(recipe: Recipe) -> TrainingResult:
    """The result in the folder of a run that ended."""
    folder = recipe.run_path
    state = read_state(folder)
    metrics = {name: value for name, value in state["metrics"].items() if value is not None}
    finished = state["status"] == FINISHED
    return TrainingResult(folder, folder / ADAPTER, metrics, state["step"], state.get("published"), finished)


def publish(recipe: Recipe) -> str | None:
    """Publish a finished run's adapter under `storage.publish`, once; the reference, or None where there is nothing to
    publish."""
    folder, name = recipe.run_path, recipe.storage.publish
    state = read_state(folder)
    if name is None or state["status"] != FINISHED:
        return None
    before = state.get("published")
    if before is not None and before.partition("@")[0] == name:
        return before
    known = json.loads((folder / ADAPTER / RUN).read_text(encoding="utf-8"))
    facts = Facts(
        base=Base.parse(known["base"]),
        targets=tuple(known["targets"]),
        **{key: known[key] for key in ("method", "stage", "rank", "tokenizer_sha256", "metrics", "run", "parent")},
    )
    store = Store(Path(recipe.storage.path) / "adapters")
    reference = store.publish(name, folder / ADAPTER, facts).reference
    write_state(folder, FINISHED, published=reference)
    return reference


def _other_recipe(recipe: Recipe) -> UserError:
    folder = recipe.run_path
    before = json.loads((folder / RECIPE).read_text(encoding="utf-8"))
    changed = sorted(_changes(before, recipe.plain()))
    return UserError(
        f"the run '{recipe.run_name}' belongs to another recipe; changed: {', '.join(changed[:6]) or 'a default'}",
        where=str(folder),
        next_step="set storage.run to another name, or delete that folder to begin anew",
    )


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Dotted keys that decide the result and differ."""
    sections = ("model", "data", "training", *PLUGIN_SECTIONS)
    return [
        f"{section}.{key}"
        for section in sections
        for key in {**before.get(section, {}), **after[section]}
        if before.get(section, {}).get(key) != after[section].get(key)
        and not (section == "training" and key in UNPRINTED_TRAINING_KEYS)
    ]
