"""The mechanism of moving in: a dialect is a table from a source key to a rule, and a rule says where the value goes.

Every key of the source ends in exactly one row of the report. Defaults of the source that differ from Cairn's are
written out as if they had been given (`implied`), else the recipe would train something else. A key whose equal is not
in this version is written all the same, and the row says so: the recipe then does not load, instead of training
without it. Which plugins there are is asked of the plugin folders, never kept here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from cairn.config.recipe import PLUGIN_SECTIONS, SECTIONS, Recipe
from cairn.errors import Problem, did_you_mean, nearest
from cairn.plugins import FAMILIES

Status = Literal["taken", "implied", "default", "no equal", "unknown", "wrong value"]
UNSET = object()
NOTHING: tuple[Any, ...] = (None, False, "", [], {})


class Found(NamedTuple):
    """What became of a value."""

    status: Status
    target: str = ""
    note: str = ""


class Row(NamedTuple):
    """One line of the report."""

    key: str
    value: Any
    status: Status
    target: str
    note: str


@dataclass
class Draft:
    """A recipe in the making: what the source says, where it lies, and what has been written so far."""

    given: Mapping[str, Any]
    path: Path
    values: dict[str, dict[str, Any]] = field(default_factory=dict)

    def get(self, key: str, default: Any = None) -> Any:
        """The source's value; null is the same as not given."""
        value = self.given.get(key)
        return default if value is None else value

    def name(self, section: str) -> str:
        """The plugin chosen for a section."""
        return str(self.values[section]["name"])

    def take(self, target: str, value: Any, note: str = "") -> Found:
        """Write `section.key`; the note also says what of it this version lacks."""
        section, _, key = target.partition(".")
        self.values.setdefault(section, {})[key] = value
        lacking = "" if exists(self.values, target) else f"this version has no {_described(self.values, target)}"
        return Found("taken", target, "; ".join(filter(None, (note, lacking))))


Rule = Callable[[Draft, Any], Found]


class WrongValue(Exception):
    """A value that the source's own program would not know; `choices` are those it does."""

    def __init__(self, value: Any, choices: Sequence[str]) -> None:
        super().__init__(value)
        self.advice = did_you_mean(str(value), choices)


class NoEqual(Exception):
    """A value without an equal; the message is the reason."""


@dataclass(frozen=True)
class To:
    """The value goes to `target`, changed by `change`.

    `off`: the value that needs nothing. `where`: section → plugins with which the key means anything. `optional`: the
    reason to give, and to write nothing, while this version has no such key.
    """

    target: str
    change: Callable[[Any], Any] | None = None
    off: Any = UNSET
    where: Mapping[str, Sequence[str]] = field(default_factory=dict)
    optional: str = ""
    note: str = ""

    def __call__(self, draft: Draft, value: Any) -> Found:
        """Write it, or say why not."""
        for section, names in self.where.items():
            if draft.name(section) not in names:
                return no_equal(f"has no effect with {section} {draft.name(section)}")
        if self.off is not UNSET and value == self.off:
            return Found("default")
        if self.optional and not exists(draft.values, self.target):
            return no_equal(self.optional)
        return draft.take(self.target, self.change(value) if self.change else value, self.note)


@dataclass(frozen=True)
class Choice:
    """A change: one of several names into another; a value `because(…)` is a reason why it has no equal."""

    names: Mapping[Any, Any]

    def __call__(self, value: Any) -> Any:
        """The other name."""
        if value not in self.names:
            raise WrongValue(value, [*map(str, self.names)])
        found = self.names[value]
        if isinstance(found, NoEqual):
            raise NoEqual(str(found))
        return found


def no_equal(reason: str) -> Found:
    """A value that is left out, and why."""
    return Found("no equal", "", reason)


def left_out(reasons: Mapping[str, str], defaults: Mapping[str, Any]) -> dict[str, Rule]:
    """Rules for keys without an equal, from reason → keys. A value that is empty or the default needs no reason."""
    return {
        key: _left(reason, defaults.get(key, UNSET)) for reason, listed in reasons.items() for key in listed.split()
    }


def _left(reason: str, default: Any) -> Rule:
    def rule(_: Draft, value: Any) -> Found:
        usual = value == default if default is not UNSET else value in NOTHING
        return Found("default") if usual else no_equal(reason)

    return rule


@dataclass(frozen=True)
class Dialect:
    """One program's configuration language.

    `rules` are by source key; `datasets.*.path` is a key in each element of a list, `trl.beta` one in a mapping.
    `implied` are the source's defaults that are written out. `names` finds the plugin of each plugin section.
    """

    title: str
    rules: Mapping[str, Rule]
    implied: Mapping[str, Any]
    names: Callable[[Mapping[str, Any]], dict[str, str]]


@dataclass(frozen=True)
class Translation:
    """A recipe's plain values, the report, and what was wrong in the source itself."""

    dialect: str
    values: dict[str, dict[str, Any]]
    rows: tuple[Row, ...]
    problems: tuple[Problem, ...]


def translate(dialect: Dialect, given: Mapping[str, Any], path: Path) -> Translation:
    """Turn the configuration that was read from `path` into a recipe."""
    names = {section: plugin_name(section, name) for section, name in dialect.names(given).items()}
    draft = Draft(given, path, {section: {"name": name} for section, name in names.items()})
    rows, problems = [], []
    for key, value in _leaves(given, dialect.rules):
        row, problem = _row(draft, dialect, key, value)
        rows.append(row)
        problems += [problem] if problem else []
    for key, value in dialect.implied.items():
        if key not in given:
            found = dialect.rules[key](draft, value)
            rows += [Row(key, value, "implied", found.target, found.note)] if found.status == "taken" else []
    return Translation(dialect.title, _ordered(draft.values), tuple(rows), tuple(problems))


def _ordered(values: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Sections and their keys in the order of the recipe; keys that this version lacks come last."""
    keys = {name: [*section.model_fields] for name, section in SECTIONS.items()}
    return {
        name: dict(sorted(values[name].items(), key=lambda item: _place(keys.get(name, []), item[0])))
        for name in Recipe.model_fields
        if name in values
    }


def _place(keys: Sequence[str], key: str) -> int:
    return keys.index(key) if key in keys else len(keys)


def _row(draft: Draft, dialect: Dialect, key: str, value: Any) -> tuple[Row, Problem | None]:
    pattern = _pattern(key)
    rule = dialect.rules.get(pattern)
    if rule is None:
        similar = nearest(pattern, dialect.rules)
        note = f"{dialect.title} has no such key" + (f"; did you mean '{similar}'?" if similar else "")
        return Row(key, value, "unknown", "", note), None
    try:
        if value is None:
            found = rule(draft, dialect.implied[key]) if key in dialect.implied else Found("default")
            return Row(key, value, "default", found.target, found.note), None
        return Row(key, value, *rule(draft, value)), None
    except NoEqual as reason:
        return Row(key, value, "no equal", "", str(reason)), None
    except WrongValue as error:
        problem = Problem(key, value, f"{dialect.title} has no such value", error.advice)
        return Row(key, value, "wrong value", "", error.advice), problem


def _leaves(given: Mapping[str, Any], rules: Mapping[str, Rule], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every key with its value; inside lists and mappings only where the dialect has rules for what is inside."""
    for name, value in given.items():
        key = f"{prefix}{name}"
        inside = any(rule.startswith(_pattern(key) + ".") for rule in rules)
        elements = value if isinstance(value, list) else []
        if inside and isinstance(value, Mapping) and value:
            yield from _leaves(value, rules, key + ".")
        elif inside and elements and all(isinstance(element, Mapping) for element in elements):
            for index, element in enumerate(elements):
                yield from _leaves(element, rules, f"{key}.{index}.")
        else:
            yield key, value


def _pattern(key: str) -> str:
    return ".".join("*" if part.isdecimal() else part for part in str(key).split("."))


def plugin_name(section: str, wanted: str) -> str:
    """The discovered plugin of that name, whether it is spelled with underscores or without; else `wanted`."""
    for name in FAMILIES[PLUGIN_SECTIONS[section][0]].names():
        if name.replace("_", "") == wanted.replace("_", ""):
            return name
    return wanted


def exists(values: Mapping[str, Mapping[str, Any]], target: str) -> bool:
    """Whether this version's recipe has the key. Keys of a plugin that is not here cannot be judged and count."""
    section, _, key = target.partition(".")
    if section in SECTIONS:
        return key in SECTIONS[section].model_fields
    plugins = FAMILIES[PLUGIN_SECTIONS[section][0]]
    name = values[section]["name"]
    if name not in plugins.names():
        return key != "name"
    return key == "name" or key in plugins.load(name).Config.model_fields


def _described(values: Mapping[str, Mapping[str, Any]], target: str) -> str:
    section, _, key = target.partition(".")
    if key == "name":
        return f"{section} '{values[section]['name']}'"
    return f"key {target}" + (f" for {values[section]['name']}" if section in PLUGIN_SECTIONS else "")
