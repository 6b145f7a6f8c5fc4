"""What a run goes on from: an earlier result, a LoRA or a whole model, and whether this stage may follow it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn.config.load import with_overrides
from cairn.config.recipe import Recipe
from cairn.errors import AdapterError, UserError
from cairn.evaluation.subject import PEFT_CONFIG, locate_adapter
from cairn.models.identity import base_sha256
from cairn.plugins import METHODS, STAGES
from cairn.store.store import Store
from cairn.training.folder import RUN


@dataclass(frozen=True)
class Start:
    """`reference`: `name@version` or a folder, as the recipe says it. `made_by`: the stage, where it is known.

    `template`: the chat template that its recipe named.
    """

    reference: str
    folder: Path
    made_by: str
    base_sha256: str
    template: str | None

    @property
    def is_whole_model(self) -> bool:
        """Whether the folder holds a model of its own, which then stands in for the base."""
        return not (self.folder / PEFT_CONFIG).is_file()


def pinned(recipe: Recipe) -> Recipe:
    """`recipe` with the version that `model.adapter` means now, so that an alias that moves changes no run, and with
    the template by name that it was trained with.

    Raises AdapterError where there is no such result, UserError where this stage cannot follow it.
    """
    named = recipe.model.adapter
    if named is None:
        return recipe
    store, changes = Store(Path(recipe.storage.path) / "adapters"), {}
    if named.partition("@")[0] in store.names():
        changes["model.adapter"] = store.resolve(named).reference
    start = start_of(recipe)
    assert start is not None
    _check(start, recipe)
    if start.template is not None and recipe.data.template is None:
        changes["data.template"] = start.template
    return with_overrides(recipe, changes)


def start_of(recipe: Recipe) -> Start | None:
    """What `model.adapter` names; AdapterError where there is nothing."""
    if recipe.model.adapter is None:
        return None
    folder = locate_adapter(recipe.model.adapter, storage=recipe.storage.path)
    note = _note(folder)
    return Start(
        reference=recipe.model.adapter,
        folder=folder,
        made_by=str(note.get("stage", "")),
        base_sha256=str(note.get("base", {}).get("sha256", "")),
        template=note.get("recipe", {}).get("data", {}).get("template"),
    )


def _check(start: Start, recipe: Recipe) -> None:
    made_by, stage = start.made_by, recipe.stage.name
    if (
        made_by in STAGES.names()
        and STAGES.load(made_by).head == "score"
        and STAGES.load(stage, recipe.stage.source).head != "score"
    ):
        raise UserError(
            f"a result of the stage '{made_by}' scores and does not speak: the stage '{stage}' cannot follow it",
            where=f"model.adapter={start.reference}",
            next_step="go on from the result that the reward model was made from",
        )
    if start.is_whole_model:
        return
    if METHODS.load(recipe.adapter.name, recipe.adapter.source).makes_whole_model:
        raise UserError(
            f"{recipe.adapter.name} training cannot go on from an adapter",
            where=f"model.adapter={start.reference}",
            next_step="set adapter.name=lora, or export the adapter merged and give that as model.path",
        )
    if start.base_sha256 and start.base_sha256 != base_sha256(recipe.model.path, recipe.model.revision):
        raise UserError(
            f"the adapter was made for another base model than {recipe.model.path}",
            where=f"model.adapter={start.reference}",
            next_step="set model.path to the base that its card names",
        )


def _note(folder: Path) -> dict[str, Any]:
    """What training left beside the weights; {} for an adapter from elsewhere."""
    path = folder / RUN
    try:
        note: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    except ValueError:
        raise AdapterError(
            "the note of its origin cannot be read", where=str(path), next_step="publish or train it again"
        ) from None
    return note
