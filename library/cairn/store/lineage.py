"""What a published version came from, step by step back to what was trained first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cairn.errors import AdapterError
from cairn.store.card import Card
from cairn.store.store import Store


@dataclass(frozen=True)
class Ancestor:
    """A parent, `depth` steps back, as the card below it names it; `card` is None, with the reason, where it is gone."""

    depth: int
    named: str
    card: Card | None
    reason: str = ""


def lineage(store: Store, card: Card, *, depth: int = 1) -> Iterator[Ancestor]:
    """Every ancestor of `card`, each before its own; one that several came from is followed each time."""
    for named in (*([card.parent] if card.parent else []), *card.parents):
        try:
            parent = store.resolve(named).card
        except AdapterError as error:
            yield Ancestor(depth, named, None, error.what)
            continue
        if parent.name == card.name and parent.version >= card.version:  # "name" alone, which has newer versions by now
            yield Ancestor(depth, named, None, "a version before this one, which the card does not number")
            continue
        yield Ancestor(depth, named, parent)
        yield from lineage(store, parent, depth=depth + 1)
