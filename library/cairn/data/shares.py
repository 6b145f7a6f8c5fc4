"""How often the rows of each subset come in an epoch, so that documents, bytes or tokens have the wanted proportions.

The Pile draws a document of component i in proportion to its documents × epochs (appendix D.1 of its paper); byte and
token shares follow. Rows hold as many tokens each, whatever the documents' lengths, so a weight wᵢ of what subset i has
an amount aᵢ of (documents, bytes or tokens) in nᵢ rows is a weight wᵢ·nᵢ/aᵢ of rows. By `epochs` each row of subset i
comes eᵢ times, the fraction by other rows in every epoch. Weights of what is absent are left out, the rest renormalised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cairn.config.data import SubsetMixture
from cairn.data.components import Component, canonical_tag, components, find_component
from cairn.data.manifest import SubsetCounts
from cairn.data.mixture import Arrangement, End, Mixture
from cairn.errors import UserError

PILE: dict[str, Callable[[Component], float]] = {
    "documents": lambda component: component.drawn_documents,
    "bytes": lambda component: component.weight_percent,
    "tokens": lambda component: component.weight_percent * component.gpt2_tokens_per_byte,
    "epochs": lambda component: component.epochs,
}
"""The Pile's own weights, by what they weigh."""

WHERE = "data.mixture"


@dataclass(frozen=True)
class Part:
    """A subset in an epoch: `epochs` is how often its rows come, `token_share` its part of all tokens."""

    counts: SubsetCounts
    epochs: float
    token_share: float


def subset_mixture(
    wanted: SubsetMixture, subsets: Sequence[SubsetCounts], *, fingerprint: str, ends: End, arrangement: Arrangement
) -> Mixture:
    """The rows of an epoch, those of `subsets` lying one after the other. UserError for one without a weight."""
    sizes = tuple(subset.rows for subset in subsets)
    weights = [_weight(wanted, subset.name) for subset in subsets]
    if wanted.by == "epochs":
        counts = tuple(round(size * weight) for size, weight in zip(sizes, weights, strict=True))
        return Mixture(fingerprint, sizes, counts, arrangement)
    amounts = [_amount(wanted.by, subset) for subset in subsets]
    shares = [w * size / amount for w, size, amount in zip(weights, sizes, amounts, strict=True)]
    return Mixture.of(sizes, fingerprint=fingerprint, weights=shares, ends=ends, arrangement=arrangement)


def parts_of(mixture: Mixture, subsets: Sequence[SubsetCounts]) -> list[Part]:
    """What becomes of each subset in an epoch."""
    epochs = [count / size for count, size in zip(mixture.counts, mixture.sizes, strict=True)]
    tokens = [subset.tokens * times for subset, times in zip(subsets, epochs, strict=True)]
    return [Part(s, times, own / sum(tokens)) for s, times, own in zip(subsets, epochs, tokens, strict=True)]


def absent(wanted: SubsetMixture, subsets: Sequence[SubsetCounts]) -> list[str]:
    """Tags that have a weight and no rows; the others' weights are renormalised."""
    present = {subset.name for subset in subsets}
    tags = [canonical_tag(name) for name in wanted.weights] or [component.tag for component in components()]
    return [tag for tag in tags if tag not in present]


def _weight(wanted: SubsetMixture, subset: str) -> float:
    if wanted.weights:
        named = {canonical_tag(name): weight for name, weight in wanted.weights.items()}
        if subset not in named:
            raise UserError(
                f"the subset '{subset}' has no weight",
                where=f"{WHERE}.weights",
                next_step=f"give it one, or leave it out: data.subsets=['-{subset}']",
            )
        return named[subset]
    component = find_component(subset)
    if component is None:
        raise UserError(
            f"the subset '{subset}' is none of the Pile's, whose weights are used where none are given",
            where=WHERE,
            next_step=f"give {WHERE}.weights, or leave it out: data.subsets=['-{subset}']",
        )
    return PILE[wanted.by](component)


def _amount(by: str, subset: SubsetCounts) -> int:
    return {"documents": subset.documents, "bytes": subset.source_bytes, "tokens": subset.tokens}[by]
