"""The end of a run: the adapter in its final place, with a note of where it came from.

`adapter/` appears by one rename, whole; `run.json` in it holds what the store's card is made of.
"""

from __future__ import annotations

import json
import shutil
from typing import Any

from cairn.models.identity import base_sha256, tokenizer_sha256
from cairn.training.checkpoint import save_adapter
from cairn.training.folder import ADAPTER, RUN
from cairn.training.journal import Journal
from cairn.training.run import Run
from cairn.training.state import FINISHED, write_state


def finish(run: Run, journal: Journal) -> None:
    """Write `adapter/` and mark the run finished; every worker calls it."""
    run_path = run.recipe.run_path
    draft = run_path / f".{ADAPTER}"
    if run.session.rank == 0:
        shutil.rmtree(draft, ignore_errors=True)
    save_adapter(run, draft)
    if run.session.rank != 0:
        return
    (draft / RUN).write_text(json.dumps(provenance(run, journal.latest), indent=1))
    shutil.rmtree(run_path / ADAPTER, ignore_errors=True)
    draft.rename(run_path / ADAPTER)
    write_state(run_path, FINISHED)


def provenance(run: Run, metrics: dict[str, Any]) -> dict[str, Any]:
    """Base model and tokenizer with their hashes, method, stage, rank, targets, metrics, and the recipe."""
    recipe = run.recipe
    rank = getattr(recipe.adapter.config, "rank", None)
    return {
        "run": recipe.run_name,
        "base": {"path": recipe.model.path, "sha256": base_sha256(recipe.model.path)},
        "tokenizer_sha256": tokenizer_sha256(run.tokenizer, template=recipe.data.template is None),
        "method": recipe.adapter.name,
        "stage": recipe.stage.name,
        "rank": rank,
        "targets": sorted(_adapted_modules(run.engine.model)),
        "steps": run.total_steps,
        "metrics": metrics,
        "recipe": recipe.plain(),
    }


def _adapted_modules(model: Any) -> set[str]:
    """Last names of the modules that carry an adapter (`q_proj`); none for full training."""
    adapted = {name.rpartition(".")[0] for name, module in model.named_modules() if name.endswith(".base_layer")}
    return {name.rpartition(".")[2] for name in adapted}
