"""DeepSpeed compiles its CPU Adam at first use (one to two minutes, once a machine) under a lock file of torch's.

A build that was killed leaves its lock behind, and torch then waits for it without a word and without end.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from cairn.errors import UserError

LONGEST_BUILD_S = 600.0


def await_build(name: str) -> None:
    """Return when nobody builds the extension `name`; UserError where its lock is older than any build takes."""
    from torch.utils.cpp_extension import _get_build_directory

    lock = Path(_get_build_directory(name, verbose=False)) / "lock"
    with contextlib.suppress(FileNotFoundError):  # the build ended
        while True:
            age_s = time.time() - lock.stat().st_mtime
            if age_s > LONGEST_BUILD_S:
                raise UserError(
                    f"a build of DeepSpeed's {name} seems to have been killed {age_s / 60:.0f} minutes ago",
                    where=str(lock),
                    next_step="delete this file, then run the same again",
                )
            time.sleep(0.5)
