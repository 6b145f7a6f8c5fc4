"""The data home: where models, samples, caches and, by default, runs and adapters lie."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """`CAIRN_HOME`, else `~/.cairn`; not created here."""
    return Path(os.environ.get("CAIRN_HOME") or Path.home() / ".cairn").expanduser().resolve()


def default_storage() -> str:
    """The storage path of a recipe that names none."""
    return str(home() / "storage")


def models() -> Path:
    """Models put here by `cairn sample`."""
    return home() / "models"


def samples() -> Path:
    """The sample corpus and instruction data."""
    return home() / "sample"


def token_cache() -> Path:
    """Prepared token shards, one folder a fingerprint."""
    return home() / "tokens"


def expand(path: str) -> str:
    """`~` and `$CAIRN_HOME` in a path, so that a recipe can name the sample without knowing where it lies."""
    return os.path.expanduser(path.replace("${CAIRN_HOME}", str(home())).replace("$CAIRN_HOME", str(home())))
