"""Cleaning: a pure function of one document, and counts by subset, filter and reason that add up in any order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from cairn.data.components import canonical_tag
from cairn.data.drops import Dropped
from cairn.data.policies import Policy
from cairn.data.view import View
from cairn.records import Document


@dataclass(frozen=True)
class Kept:
    """A document as it came out, and what was taken from it, by reason."""

    document: Document
    changes: Mapping[str, int]


def clean(document: Document, policy: Policy) -> Kept | Dropped:
    """The document after all filters of its subset, each seeing what the former left; or why it goes."""
    view = View(document)
    changes: Counter[str] = Counter()
    for judge in policy.filters_for(document.subset):
        verdict = judge.judge(view)
        if isinstance(verdict, Dropped):
            return verdict
        if verdict is not None:
            changes.update(verdict.counts)
            view = View(msgspec.structs.replace(view.document, text=verdict.text))
    return Kept(view.document, dict(changes))


class SubsetCleaning(msgspec.Struct):
    """What cleaning did to one subset: documents and UTF-8 bytes before and after, and why.

    `dropped` and `changed` count documents by reason; `amounts` is how much was taken or masked, by reason (lines, marks).
    A reason is `filter: reason`.
    """

    documents: int = 0
    kept: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    dropped: dict[str, int] = {}
    changed: dict[str, int] = {}
    amounts: dict[str, int] = {}


class Cleaning:
    """Counts by subset, of any number of documents, in any order."""

    def __init__(self) -> None:
        self.subsets: dict[str, SubsetCleaning] = {}

    def count(self, document: Document, outcome: Kept | Dropped) -> None:
        """Take one outcome of `clean` into account."""
        counts = self.subsets.setdefault(canonical_tag(document.subset), SubsetCleaning())
        counts.documents += 1
        counts.bytes_before += len(document.text.encode())
        if isinstance(outcome, Dropped):
            _add(counts.dropped, {outcome.reason: 1})
            return
        counts.kept += 1
        counts.bytes_after += len(outcome.document.text.encode())
        _add(counts.changed, dict.fromkeys(outcome.changes, 1))
        _add(counts.amounts, outcome.changes)

    def add(self, other: Mapping[str, SubsetCleaning]) -> None:
        """Take counts into account that were made elsewhere."""
        for subset, theirs in other.items():
            ours = self.subsets.setdefault(subset, SubsetCleaning())
            for name in ("documents", "kept", "bytes_before", "bytes_after"):
                setattr(ours, name, getattr(ours, name) + getattr(theirs, name))
            for name in ("dropped", "changed", "amounts"):
                _add(getattr(ours, name), getattr(theirs, name))


def _add(counts: dict[str, int], more: Mapping[str, int]) -> None:
    for reason, count in more.items():
        counts[reason] = counts.get(reason, 0) + count
