"""A checkpoint: optimizer state by parameter name, the adapter as others open it, and a manifest written last.

    optimizer.safetensors, optimizer.json   fp32 masters and optimizer state, for any number of workers and ZeRO stage
    method.safetensors                      what the method must know later, of one that does more than descend
    adapter/                                what the method saves: a PEFT directory or a model directory
    checkpoint.json                         step, cursor, fingerprint of the recipe, what the stage and the callbacks
                                            must know later, size and sha256 of every file

Randomness needs no place here: every step draws from a seed made of the recipe's seed, the step and the rank.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from cairn.data.cursor import Cursor
from cairn.errors import StorageError, UserError
from cairn.training.folder import ADAPTER
from cairn.training.run import Run
from cairn.training.state import replace_text

MANIFEST, METHOD = "checkpoint.json", "method.safetensors"


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint is; `files` are relative path → [bytes, sha256]."""

    step: int
    fingerprint: str
    cursor: dict[str, Any]
    files: dict[str, list[Any]]
    callbacks: dict[str, Any]
    stage: dict[str, float]


def checkpoint_name(step: int) -> str:
    """Folder name of the checkpoint after `step`; sorts by step."""
    return f"step_{step:08d}"


def save(run: Run, step: int, cursor: Cursor, callbacks: Mapping[str, Any]) -> Path | None:
    """Write the checkpoint after `step` into a fresh local folder; the folder on rank 0, None elsewhere.

    Every worker calls it. The caller hands the folder to `Session.report`.
    """
    folder = Path(tempfile.mkdtemp(prefix="cairn-checkpoint-")) if run.session.rank == 0 else Path()
    run.engine.save(folder)
    if run.hook is not None and run.session.rank == 0:
        save_file({name: value.contiguous() for name, value in run.hook.state().items()}, folder / METHOD)
    save_adapter(run, folder / ADAPTER)
    if run.session.rank != 0:
        return None
    files = {
        path.relative_to(folder).as_posix(): _signature(path) for path in sorted(folder.rglob("*")) if path.is_file()
    }
    manifest = Manifest(step, run.recipe.fingerprint(), cursor.plain(), files, dict(callbacks), run.stage.state)
    replace_text(folder / MANIFEST, json.dumps(asdict(manifest), indent=1))
    return folder


def save_adapter(run: Run, folder: Path) -> None:
    """The trained adapter (or model) and the tokenizer, from rank 0; every worker calls it."""
    with run.engine.whole() as model:
        if run.session.rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
            run.method.save(model, folder)
            run.tokenizer.save_pretrained(folder)


def resume(run: Run) -> tuple[int, Cursor, dict[str, Any]]:
    """The step after which to go on, the cursor and the callbacks' state there; (0, a fresh cursor, {}) without a
    checkpoint.

    UserError when the checkpoint is of another recipe, StorageError when it is damaged.
    """
    with run.session.latest_checkpoint() as folder:
        if folder is None:
            return 0, Cursor(seed=run.recipe.training.seed, fingerprint=run.feed.fingerprint), {}
        manifest = read_manifest(folder)
        if manifest.fingerprint != run.recipe.fingerprint():
            raise UserError(
                f"the run '{run.recipe.run_name}' has a checkpoint of another recipe",
                where=str(folder),
                next_step="set storage.run to another name, or restore the recipe of that run",
            )
        run.engine.load(folder)
        if run.hook is not None:
            run.hook.restore(load_file(folder / METHOD))
        run.stage.state.update(manifest.stage)
        return manifest.step, Cursor(**manifest.cursor), manifest.callbacks


def read_manifest(folder: Path) -> Manifest:
    """The manifest, after every file was compared with it; StorageError for a missing, cut or changed file."""
    try:
        manifest = Manifest(**json.loads((folder / MANIFEST).read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise _damaged(folder, f"its manifest cannot be read ({error})") from None
    for name, signature in manifest.files.items():
        path = folder / name
        if not path.is_file() or _signature(path) != signature:
            raise _damaged(folder, f"{name} is missing or changed")
    return manifest


def _signature(path: Path) -> list[Any]:
    with path.open("rb") as file:
        return [path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()]


def _damaged(folder: Path, what: str) -> StorageError:
    return StorageError(
        f"the checkpoint is damaged: {what}",
        where=str(folder),
        next_step="delete that folder to go on from an older checkpoint, or the run's folder to begin anew",
    )
