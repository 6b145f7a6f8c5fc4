"""The Pile's 22 components: tags, aliases, weights.

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
    """`weight_percent`: share of effective bytes (Table 1). `gpt2_tokens_per_byte`: Table 7."""

    tag: str
    aliases: tuple[str, ...]
    weight_percent: float
    epochs: float
    raw_documents: int
    gpt2_tokens_per_byte: float


@cache
def components() -> tuple[Component, ...]:
    """All 22, in the order of Table 1."""
    rows = json.loads(FACTS.read_text(encoding="utf-8"))["components"]
    return tuple(
        Component(
            tag=row["pile_set_name"],
            aliases=tuple(row["aliases"]),
            weight_percent=row["weight_percent"],
            epochs=row["epochs"],
            raw_documents=row["raw_docs"],
            gpt2_tokens_per_byte=row["gpt2_tokens_per_byte"],
        )
        for row in rows
    )


@cache
def _by_name() -> dict[str, Component]:
    named = {component.tag: component for component in components()}
    return {**{alias: c for c in components() for alias in c.aliases}, **named}


def canonical_tag(name: str) -> str:
    """The tag that `name` stands for; a name the Pile does not know stays as it is."""
    component = _by_name().get(name)
    return component.tag if component else name


def pile_weight(name: str) -> float | None:
    """Table 1's weight of a tag or alias, as a fraction of effective bytes; None outside the Pile."""
    component = _by_name().get(name)
    return component.weight_percent / 100 if component else None
