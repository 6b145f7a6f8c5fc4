"""Which filters clean which documents.

A policy is a list of rules `{name, …the filter's Config, subsets, except}`. `subsets` and `except` are words of a
selection (tags, aliases, kinds) or groups of `policies.yaml` (web, code, chat …). A rule without `subsets` is for all
documents, except that a filter made for the web leaves alone the components of the Pile that are none: code,
mathematics, chat logs, parliament records, books. A word that is none of these is a subset's own name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cairn.config.choice import Choice
from cairn.config.load import parse_choice
from cairn.data.components import canonical_tag, find_component
from cairn.data.filters.base import Filter
from cairn.data.selection import Selection
from cairn.errors import Problem, RecipeError, did_you_mean
from cairn.plugins import FILTERS
from cairn.records import Source

POLICIES = Path(__file__).with_name("policies.yaml")
DEFAULT, GROUPS, WEB = "default", "groups", "web"
SUBSETS, EXCEPT = "subsets", "except"
NOWHERE = Source("", 0)


@cache
def policies() -> dict[str, Any]:
    """The groups of components and the named policies."""
    named: dict[str, Any] = yaml.safe_load(POLICIES.read_text(encoding="utf-8"))
    return named


@dataclass(frozen=True)
class Rule:
    """One filter, the subsets it is for (None: all that suit it), and those it is not for; `plain`: as a file says it."""

    filter: Filter
    subsets: Selection | None
    excepted: Selection | None
    plain: dict[str, Any]

    def applies(self, subset: str) -> bool:
        """Whether documents of that subset are judged by it."""
        if self.excepted is not None and (subset, NOWHERE) in self.excepted:
            return False
        if self.subsets is not None:
            return (subset, NOWHERE) in self.subsets
        other = find_component(subset) is not None and canonical_tag(subset) not in policies()[GROUPS][WEB]
        return not (self.filter.for_web and other)


@dataclass(frozen=True)
class Policy:
    """Rules in their order."""

    rules: tuple[Rule, ...]
    _by_subset: dict[str, tuple[Filter, ...]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def parse(cls, values: Any, path: str = "data.filters") -> Policy:
        """The policy of that name, or of those rules; a RecipeError with all that is wrong in them."""
        problems: list[Problem] = []
        rules = [_rule(f"{path}.{i}", value, problems) for i, value in enumerate(_listed(path, values, problems))]
        if problems:
            raise RecipeError(problems)
        return cls(tuple(rule for rule in rules if rule is not None))

    def filters_for(self, subset: str) -> tuple[Filter, ...]:
        """The filters that judge a document of that subset, in order."""
        if subset not in self._by_subset:
            self._by_subset[subset] = tuple(rule.filter for rule in self.rules if rule.applies(subset))
        return self._by_subset[subset]

    def plain(self) -> list[dict[str, Any]]:
        """The rules with all defaults and the text of files of one's own: `parse` makes the same policy of them, anywhere."""
        return [rule.plain for rule in self.rules]

    def fingerprint(self) -> list[str]:
        """All that the outcome depends on beside the documents and Cairn's own code."""
        tags = [[sorted(s.tags) if s else None for s in (rule.subsets, rule.excepted)] for rule in self.rules]
        return [
            json.dumps([rule.plain, rule.filter.fingerprint(), chosen], sort_keys=True)
            for rule, chosen in zip(self.rules, tags, strict=True)
        ]


def _listed(path: str, values: Any, problems: list[Problem]) -> Sequence[Any]:
    named = {name: rules for name, rules in policies().items() if name != GROUPS}
    if isinstance(values, str) and values in named:
        rules: Sequence[Any] = named[values]
        return rules
    if isinstance(values, str):
        problems.append(Problem(path, values, "there is no policy of that name", did_you_mean(values, named)))
    elif not isinstance(values, list | tuple):
        problems.append(Problem(path, values, "a list of filters is needed", f"write {path}: [{{name: …}}]"))
    else:
        return values
    return ()


def _rule(path: str, value: Any, problems: list[Problem]) -> Rule | None:
    options = dict(value) if isinstance(value, Mapping) else value
    words = {key: options.pop(key) for key in (SUBSETS, EXCEPT) if isinstance(options, dict) and key in options}
    chosen = {key: _selection(f"{path}.{key}", named, problems) for key, named in words.items()}
    choice: Choice | None = parse_choice(path, "data.filters", None, options, problems)
    if choice is None:
        return None
    return Rule(FILTERS.make(choice), chosen.get(SUBSETS), chosen.get(EXCEPT), {**choice.plain(), **words})


def _selection(path: str, words: Any, problems: list[Problem]) -> Selection | None:
    if not isinstance(words, list | tuple) or not words or not all(isinstance(word, str) for word in words):
        problems.append(
            Problem(path, words, "a list of subsets is needed", "name tags, kinds or groups: [web, Github]")
        )
        return None
    for word in words:
        if word.startswith(("-", "source:")):
            problems.append(Problem(path, word, "a filter is chosen by subset", "name what is left out in `except`"))
    groups = policies()[GROUPS]
    return Selection.of(word for named in words for word in groups.get(named, [named]))
