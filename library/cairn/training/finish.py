"""The end of a run: the adapter in its final place, with a note of where it came from.

`adapter/` appears by one rename, whole; `run.json` in it holds what the store's card is made of. A run that only pauses
(a time limit) is marked as stopped instead, and the same recipe goes on from its last checkpoint.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from cairn.evaluation.subject import PEFT_CONFIG
from cairn.models.identity import base_sha256, tokenizer_sha256
from cairn.training.checkpoint import save_adapter
from cairn.training.folder import ADAPTER, RUN
from cairn.training.hooks import Hooks
from cairn.training.journal import Journal
from cairn.training.run import Run
from cairn.training.state import FINISHED, STOPPED, write_state


def finish(run: Run, journal: Journal, hooks: Hooks) -> None:
    """Write `adapter/` and mark the run finished, or stopped where it only pauses; every worker calls it."""
    run_path, end = run.recipe.run_path, hooks.end
    ended = {"ended": end.reason} if end else {}
    if end and not end.finished:
        if run.session.rank == 0:
            write_state(run_path, STOPPED, **ended)
        return
    draft = run_path / f".{ADAPTER}"
    if run.session.rank == 0:
        shutil.rmtree(draft, ignore_errors=True)
    save_adapter(run, draft)
    if run.session.rank != 0:
        return
    facts = provenance(run, draft, journal.step, journal.latest) | hooks.finish(draft)
    (draft / RUN).write_text(json.dumps(facts, indent=1))
    shutil.rmtree(run_path / ADAPTER, ignore_errors=True)
    draft.rename(run_path / ADAPTER)
    write_state(run_path, FINISHED, adapter_step=facts["step"], metrics=facts["metrics"], **ended)
    run.feed.close()


def provenance(run: Run, adapter: Path, step: int, metrics: dict[str, Any]) -> dict[str, Any]:
    """Base model and tokenizer with their hashes, the method and rank of what lies in `adapter`, stage, targets, the
    recipe, the step after which it stood so and the metrics then."""
    recipe, quantized = run.recipe, run.recipe.model.quantized
    return {
        "run": recipe.run_name,
        "parent": recipe.model.adapter,
        "base": {
            "path": recipe.model.path,
            "sha256": base_sha256(recipe.model.path),
            "quantization": quantized.model_dump(mode="json") if quantized is not None else None,
        },
        "tokenizer_sha256": tokenizer_sha256(run.tokenizer, template=recipe.data.template is None),
        "method": run.method.saved_as or recipe.adapter.name,
        "stage": recipe.stage.name,
        "rank": _rank(adapter),
        "targets": sorted(_adapted_modules(run.engine.model)),
        "steps": run.total_steps,
        "step": step,
        "metrics": metrics,
        "recipe": recipe.plain(),
    }


def _rank(adapter: Path) -> int | None:
    """Of an adapter that has one; of several the commonest."""
    config = adapter / PEFT_CONFIG
    return json.loads(config.read_bytes()).get("r") if config.is_file() else None


def _adapted_modules(model: Any) -> set[str]:
    """Last names of the modules that carry an adapter (`q_proj`); none for full training."""
    adapted = {name.rpartition(".")[0] for name, module in model.named_modules() if name.endswith(".base_layer")}
    return {name.rpartition(".")[2] for name in adapted}
