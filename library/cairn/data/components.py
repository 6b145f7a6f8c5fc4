"""The Pile's 22 components: tags, aliases, sizes, weights, kinds and licence marks.

The facts in `pile_components.json` are Tables 1, 5 and 7 of the paper (Gao et al. 2020, arXiv 2101.00027) and the
counts of its replication code. Tags match exactly; every other spelling on record is an explicit alias.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FACTS = Path(__file__).with_name("pile_components.json")


@dataclass(frozen=True)
class Component:
    """`raw_bytes` of UTF-8 text in `raw_documents`, of which the Pile holds `epochs`; `weight_percent`: share of effective
    bytes (Table 1). `gpt2_tokens_per_byte`: Table 7. `kind`: the paper's five. `consent_marks`: how many of public, terms
    of service and author consent (Table 5). `uncopyrighted`: whether pile-uncopyrighted kept it."""

    name: str
    tag: str
    aliases: tuple[str, ...]
    kind: str
    consent_marks: int
    uncopyrighted: bool
    raw_bytes: int
    raw_documents: int
    epochs: float
    weight_percent: float
    gpt2_tokens_per_byte: float

    @property
    def drawn_documents(self) -> float:
        """Documents × epochs: in these proportions the Pile's documents were drawn (appendix D.1)."""
        return self.raw_documents * self.epochs


@cache
def components() -> tuple[Component, ...]:
    """All 22, in the order of Table 1."""
    rows = json.loads(FACTS.read_text(encoding="utf-8"))["components"]
    return tuple(
        Component(
            name=row["name"],
            tag=row["pile_set_name"],
            aliases=tuple(row["aliases"]),
            kind=row["kind"],
            consent_marks=row["consent_marks"],
            uncopyrighted=row["in_pile_uncopyrighted"],
            raw_bytes=row["raw_bytes"],
            raw_documents=row["raw_docs"],
            epochs=row["epochs"],
            weight_percent=row["weight_percent"],
            gpt2_tokens_per_byte=row["gpt2_tokens_per_byte"],
        )
        for row in rows
    )


@cache
def _by_name() -> dict[str, Component]:
    named = {component.tag: component for component in components()}
    return {**{alias: c for c in components() for alias in c.aliases}, **named}


def find_component(name: str) -> Component | None:
    """The component of a tag or alias; None outside the Pile."""
    return _by_name().get(name)


def canonical_tag(name: str) -> str:
    """The tag that `name` stands for; a name the Pile does not know stays as it is."""
    component = find_component(name)
    return component.tag if component else name


def pile_weight(name: str) -> float | None:
    """Table 1's weight of a tag or alias, as a fraction of effective bytes; None outside the Pile."""
    component = find_component(name)
    return component.weight_percent / 100 if component else None
