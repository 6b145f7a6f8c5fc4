"""The errors a person meets: what was wrong with which value, where it came from, what to do next.

`UserError` is the user's to mend (exit code 2); any other `CairnError` is ours (exit code 1).
Everything that reads input raises one of these; a traceback reaches a person only for a fault of Cairn.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


class CairnError(Exception):
    """A failure with a place and a next step. `where` is a file, a line, a field path or a URL."""

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", next_step: str = "") -> None:
        self.what, self.where, self.next_step = what, where, next_step
        super().__init__(what, where, next_step)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        advice = f"\n  → {self.next_step}" if self.next_step else ""
        return f"{place}{self.what}{advice}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Ray pickles errors across processes; keyword arguments would be lost by the default."""
        return _rebuild, (type(self), self.what, self.where, self.next_step)


def _rebuild(kind: type[CairnError], what: str, where: str, next_step: str) -> CairnError:
    return kind(what, where=where, next_step=next_step)


class UserError(CairnError):
    """Input that a user can mend."""

    exit_code = 2


class DataError(UserError):
    """A file or record that cannot be read as what it claims to be."""


class ModelError(UserError):
    """A model directory, hub name or GGUF file that cannot be used."""


class AdapterError(UserError):
    """An adapter that is refused, or a reference that resolves to none."""


class StorageError(CairnError):
    """Storage that failed under us: a full disk, a lost mount."""


@dataclass(frozen=True)
class Problem:
    """One mistake in a recipe: its dotted path, the value found, what is wrong, and what to do."""

    path: str
    value: Any
    message: str
    advice: str

    def __str__(self) -> str:
        shown = json.dumps(self.value, default=repr, ensure_ascii=False)
        if len(shown) > 80:
            shown = shown[:77] + "..."
        return f"{self.path} = {shown}: {self.message}\n  → {self.advice}"


class RecipeError(UserError):
    """All mistakes of one recipe at once."""

    def __init__(self, problems: Sequence[Problem], *, where: str = "") -> None:
        self.problems = tuple(problems)
        count = f"{len(self.problems)} problem" + ("s" if len(self.problems) != 1 else "")
        listing = "\n".join(str(problem) for problem in self.problems)
        super().__init__(f"{count} in the recipe\n{listing}", where=where)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_recipe_error, (self.problems, self.where)


def _rebuild_recipe_error(problems: Sequence[Problem], where: str) -> RecipeError:
    return RecipeError(problems, where=where)


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """The choice most like `name` (difflib ratio of at least 0.5), or None."""
    found = difflib.get_close_matches(str(name), list(choices), n=1, cutoff=0.5)
    return found[0] if found else None


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """Advice for an unknown name: the nearest one, else the whole list."""
    names = sorted(choices)
    match = nearest(name, names)
    return f"did you mean '{match}'?" if match else f"choose one of: {', '.join(names)}"
