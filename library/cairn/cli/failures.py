"""What a person sees when something fails: what, where, what to do; and the exit code (2 the user's, 1 ours).

Ray wraps an error of a worker in its own; the Cairn error inside is found again by walking causes, without importing
Ray. A traceback is shown with `--debug` only.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass

from cairn.errors import CairnError


@dataclass(frozen=True)
class Failure:
    """The message for a person and the exit code of the process."""

    message: str
    exit_code: int


def explain(error: BaseException) -> Failure:
    """The Failure for any exception that reached the command."""
    notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))
    for inner in _chain(error):
        if isinstance(inner, CairnError):
            return Failure(str(inner) + notes, inner.exit_code)
    for inner in _chain(error):
        if isinstance(inner, OSError) and inner.errno == errno.ENOSPC:
            return Failure(f"the disk is full ({inner})\n  → free some space and run the same command again", 1)
    root = list(_chain(error))[-1]
    text = f"{type(root).__name__}: {str(root).strip() or 'no message'}"
    return Failure(f"unexpected: {text}{notes}\n  → run it again with --debug for the traceback", 1)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what is inside it, outermost first: causes, Ray's `cause`, a worker group's failures."""
    waiting: list[BaseException] = [error]
    seen: set[int] = set()
    while waiting:
        current = waiting.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        failures = getattr(current, "worker_failures", None)
        inside = [*failures.values()] if isinstance(failures, dict) else []
        inside += [getattr(current, "cause", None), current.__cause__]
        waiting += [item for item in inside if isinstance(item, BaseException)]
