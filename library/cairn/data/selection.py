"""Which subsets of a corpus are meant: by tag or alias, by one of the paper's five kinds, by licence, by source.

A list of words, of which one with a `-` before it leaves out: `[pile-uncopyrighted, -dialogue, -source:*/07.jsonl.zst]`.
Without a word that takes, everything is taken. A name that is none of these is a subset's own, matched exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from cairn.data.components import Component, canonical_tag, components
from cairn.records import Source

SOURCE = "source:"
KINDS = ("academic", "internet", "prose", "dialogue", "miscellaneous")
MARKS = (1, 2, 3)
"""How many of Table 5's three marks of consent a component can have."""

SELECTIONS: dict[str, Callable[[Component], bool]] = {
    **{kind: lambda component, kind=kind: component.kind == kind for kind in KINDS},  # type: ignore[misc]
    **{f"consent-{n}": lambda component, n=n: component.consent_marks == n for n in MARKS},  # type: ignore[misc]
    "pile-uncopyrighted": lambda component: component.uncopyrighted,
}
"""Names of several components at once."""


@dataclass(frozen=True)
class Selection:
    """Tags and patterns of sources that are taken (none: all) and that are left out."""

    tags: frozenset[str] = frozenset()
    sources: tuple[str, ...] = ()
    not_tags: frozenset[str] = frozenset()
    not_sources: tuple[str, ...] = ()

    @classmethod
    def of(cls, words: Iterable[str]) -> Selection:
        """What `words` select."""
        listed = list(words)
        taken = [word for word in listed if not word.startswith("-")]
        left = [word.removeprefix("-") for word in listed if word.startswith("-")]
        return cls(_tags(taken), _sources(taken), _tags(left), _sources(left))

    def __contains__(self, document: tuple[str, Source]) -> bool:
        """Whether a record of that subset, from there, is meant."""
        subset, source = document
        tag = canonical_tag(subset)
        if tag in self.not_tags or _matches(source, self.not_sources):
            return False
        everything = not self.tags and not self.sources
        return everything or tag in self.tags or _matches(source, self.sources)


def _tags(words: Iterable[str]) -> frozenset[str]:
    return frozenset(tag for word in words if not word.startswith(SOURCE) for tag in _named(word))


def _named(word: str) -> Iterator[str]:
    selects = SELECTIONS.get(word)
    if selects is None:
        yield canonical_tag(word)
    else:
        yield from (component.tag for component in components() if selects(component))


def _sources(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(word.removeprefix(SOURCE) for word in words if word.startswith(SOURCE))


def _matches(source: Source, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(source.file, pattern) for pattern in patterns)
