"""`state.json` of a run folder: where the run stands, for whoever watches it (progress bar, dashboard, a second start).

Keys: `status`, `fingerprint` of the recipe, `started` (this start) and `updated` (Unix seconds), `step` (the last one
logged), `steps` in all, `metrics` (the newest value of each; of a finished run those of its adapter), and, where there
are, `error`, `ended` (why before the last step), `adapter_step` (after which the adapter stood as it is),
`tracker_failures` (how often each failed) and `published`.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

STATE = "state.json"
STARTING, RUNNING, STOPPED, FINISHED, FAILED = "starting", "running", "stopped", "finished", "failed"


def write_state(run_path: Path, status: str, **fields: Any) -> None:
    """Replace the state; fields that are not given stay as they were."""
    state = {**read_state(run_path), "status": status, "updated": time.time(), **fields}
    replace_text(run_path / STATE, json.dumps(state, indent=1))


def read_state(run_path: Path) -> dict[str, Any]:
    """The state; empty before the run was first started."""
    try:
        return json.loads((run_path / STATE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}


def replace_text(path: Path, text: str) -> None:
    """Set a file's content in one step: a reader sees the old or the new, whole."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)
