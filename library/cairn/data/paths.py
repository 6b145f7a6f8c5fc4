"""Where something stands in a row, as a format's YAML says it: `meta.title`, `chat.*.text`, `answer | after:#### | strip`.

Keys are dotted; a number is an index into a list (−1 the last), `*` every element of a list or mapping, `.` the row itself.
Behind ` | ` stand steps that work on what was found: a small fixed set, so a YAML stays data and runs no code. Several
paths stand with ` || ` between them (`label || kto_tag`): the first that leads to something. A path is read once and
becomes a function (`getter`), so a row costs a lookup for each key.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

MISSING = object()
Apply = Callable[[Any, str], Any]
Step = tuple[Apply, str]
ITSELF, EVERY, PIPE, OR = ".", "*", " | ", " || "

Getter = Callable[[Any], Any]
"""row → what stands at a place, or MISSING. Raises FieldError where a step fails."""


class StepError(ValueError):
    """A step that cannot work on what was found; the text says what was expected."""


class FieldError(ValueError):
    """What stands at `field`, a path, is not what is needed there."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"field '{field}': {problem}")
        self.field, self.problem = field, problem

    def within(self, prefix: str) -> FieldError:
        """The same, where the path begins at an element that stands at `prefix`."""
        return FieldError(prefix + self.field, self.problem)


def value_at(row: Any, path: str) -> Any:
    """The value at `path`, or MISSING; of several paths the first value that is not null. Raises FieldError."""
    return getter(path)(row)


@cache
def getter(path: str) -> Getter:
    """What finds the value at `path` in a row. ValueError for a step that there is none of."""
    parsed = _parsed(path)
    several = tuple(_stepping(_reaching(keys), steps) for keys, steps in parsed)
    find = several[0] if len(several) == 1 else _first_of(several)
    return _naming(path, find) if any(steps for _, steps in parsed) else find


def _naming(path: str, find: Getter) -> Getter:
    def named(row: Any) -> Any:
        try:
            return find(row)
        except StepError as error:
            raise FieldError(path, str(error)) from None

    return named


def _first_of(several: Sequence[Getter]) -> Getter:
    def first(row: Any) -> Any:
        found = MISSING
        for find in several:
            other = find(row)
            found = found if other is MISSING else other
            if found is not MISSING and found is not None:
                break
        return found

    return first


def _stepping(reach: Getter, steps: Sequence[Step]) -> Getter:
    if not steps:
        return reach

    def step_on(row: Any) -> Any:
        found = reach(row)
        for step, argument in steps:
            if found is MISSING or found is None:
                return found
            found = step(found, argument)
        return found

    return step_on


@cache
def _reaching(keys: tuple[str, ...]) -> Getter:
    """What goes down the keys, each in what the one before it leads to."""
    if not keys:
        return lambda value: value
    key, below = keys[0], _reaching(keys[1:]) if keys[1:] else None
    if key == EVERY:
        return _every(below)
    index = int(key) if key.removeprefix("-").isdecimal() else None

    def reach(value: Any) -> Any:
        if isinstance(value, dict):
            found = value.get(key, MISSING)
        elif index is not None and isinstance(value, list) and -len(value) <= index < len(value):
            found = value[index]
        else:
            return MISSING
        return found if below is None else below(found)

    return reach


def _every(below: Getter | None) -> Getter:
    def reach(value: Any) -> Any:
        if not isinstance(value, list | dict):
            return MISSING
        elements = value.values() if isinstance(value, dict) else value
        return [found for element in elements if (found := below(element) if below else element) is not MISSING]

    return reach


def first_keys(path: str) -> Iterator[str]:
    """The key of the row that a path begins with, for each of several paths; none for the row itself."""
    for keys, _ in _parsed(path):
        yield from keys[:1]


def renamed(path: str, names: Mapping[str, str]) -> str:
    """The path with every key that `names` has replaced."""
    return OR.join(_renamed(one, names) for one in path.split(OR))


def _renamed(path: str, names: Mapping[str, str]) -> str:
    where, *steps = path.split(PIPE)
    return PIPE.join([ITSELF if where == ITSELF else ".".join(names.get(key, key) for key in where.split(".")), *steps])


@cache
def _parsed(path: str) -> tuple[tuple[tuple[str, ...], tuple[Step, ...]], ...]:
    """Keys and steps of each of the paths."""
    return tuple(_parsed_one(one) for one in path.split(OR))


def _parsed_one(path: str) -> tuple[tuple[str, ...], tuple[Step, ...]]:
    where, *steps = path.split(PIPE)
    named = [step.partition(":")[::2] for step in steps]
    for name, _ in named:
        if name not in STEPS:
            raise ValueError(f"'{path}': there is no step '{name}'; there are {', '.join(STEPS)}")
    keys = () if where == ITSELF else tuple(where.split("."))
    return keys, tuple((STEPS[name], argument) for name, argument in named)


def _text(step: str, found: Any) -> str:
    if not isinstance(found, str):
        raise StepError(f"{step} works on a string, found {type(found).__name__}")
    return found


def _json(found: Any, _: str) -> Any:
    """JSON inside a string; anything else is what it is."""
    if not isinstance(found, str):
        return found
    if not found.strip():
        return MISSING
    try:
        return json.loads(found)
    except json.JSONDecodeError as error:
        raise StepError(f"expected JSON ({error.msg})") from None


def _literal(found: Any, _: str) -> Any:
    """As `json`, and what `str()` makes of a mapping in Python, as tables on the hub have it."""
    try:
        return _json(found, _)
    except StepError:
        try:
            return ast.literal_eval(found)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise StepError("expected JSON or a literal of Python") from None


def _after(found: Any, mark: str) -> Any:
    """What follows the last `mark`."""
    _, seen, rest = _text("after", found).rpartition(mark)
    return rest if seen else MISSING


def _boxed(found: Any, _: str) -> Any:
    r"""What stands in the last \boxed{…}, braces within it balanced."""
    text = _text("boxed", found)
    start = text.rfind("\\boxed{")
    if start < 0:
        return MISSING
    depth, begin = 0, start + len("\\boxed")
    for at in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[begin + 1 : at]
    return MISSING


def _joined(found: Any, _: str) -> str:
    if not isinstance(found, list) or not all(isinstance(part, str) for part in found):
        raise StepError("lines works on a list of strings")
    return "\n".join(found)


def _at(found: Any, path: str) -> Any:
    """Further down in what an earlier step found."""
    return _reaching(tuple(path.split(".")))(found)


def _negative(found: Any, _: str) -> Any:
    """A number with its sign turned, also where it is written as a string."""
    try:
        return -float(found)
    except (TypeError, ValueError):
        raise StepError(f"negative works on a number, found {type(found).__name__}") from None


STEPS: dict[str, Apply] = {
    "json": _json,
    "literal": _literal,
    "at": _at,
    "negative": _negative,
    "strip": lambda found, _: _text("strip", found).strip(),
    "lower": lambda found, _: _text("lower", found).lower(),
    "after": _after,
    "before": lambda found, mark: _text("before", found).partition(mark)[0],
    "without": lambda found, mark: _text("without", found).replace(mark, ""),
    "unless": lambda found, nothing: MISSING if found == nothing else found,
    "boxed": _boxed,
    "lines": _joined,
    "first": lambda found, _: found[0] if isinstance(found, list) and found else MISSING,
    "last": lambda found, _: found[-1] if isinstance(found, list) and found else MISSING,
}
"""Name → what it does with the value and the text behind its colon. `before` leaves a text without the mark whole;
`unless` takes the text that stands for nothing as missing."""
