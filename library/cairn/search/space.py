"""The searched keys: drawn once, seeded, before the first trial starts, so that a resumed search has the same trials.

Every draw is checked as a recipe of its own, so a bad axis is one message here and not a failed trial later.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from cairn.config.load import with_overrides
from cairn.config.recipe import Axis, Recipe
from cairn.errors import Problem, RecipeError, did_you_mean


def draw(recipe: Recipe) -> list[dict[str, Any]]:
    """`search.trials` random choices of dotted key → value; RecipeError with everything wrong with the space."""
    plain = recipe.plain()
    problems = [problem for key in recipe.search.space for problem in _key_problems(plain, key)]
    if not recipe.search.space:
        problems.append(
            Problem("search.space", {}, "nothing to search", "add for example adapter.rank: {choices: [4, 8]}")
        )
    if problems:
        raise RecipeError(problems, where="search")
    generator = random.Random(recipe.search.seed)
    drawn = [_draw_one(recipe.search.space, plain, generator) for _ in range(recipe.search.trials)]
    for changes in drawn:
        with_overrides(recipe, changes)
    return drawn


def _draw_one(space: Mapping[str, Axis], plain: Mapping[str, Any], generator: random.Random) -> dict[str, Any]:
    return {key: _value(axis, generator, whole=isinstance(_at(plain, key), int)) for key, axis in space.items()}


def _value(axis: Axis, generator: random.Random, *, whole: bool) -> Any:
    """One draw; a range over a key that holds a whole number gives whole numbers, ends included."""
    if axis.choices:
        return generator.choice(axis.choices)
    assert axis.low is not None
    assert axis.high is not None
    share = generator.random()
    value = axis.low * (axis.high / axis.low) ** share if axis.log else axis.low + (axis.high - axis.low) * share
    return round(value) if whole else value


def _key_problems(plain: Mapping[str, Any], key: str) -> list[Problem]:
    section, _, rest = key.partition(".")
    path = f"search.space.{key}"
    if section in ("storage", "search"):
        return [Problem(path, key, "this key is the search's own", "search keys of the model, data, stage or training")]
    if section not in plain:
        return [Problem(path, key, f"there is no section '{section}'", did_you_mean(section, plain))]
    if not rest or (_at(plain, key) is _ABSENT and "name" not in plain[section]):
        return [Problem(path, key, "there is no such key", did_you_mean(rest, plain[section]))]
    return []


_ABSENT = object()


def _at(plain: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key, or _ABSENT."""
    value: Any = plain
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return _ABSENT
        value = value[part]
    return value
