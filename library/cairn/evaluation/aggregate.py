"""One figure for many subsets, four ways, each under its own name.

`micro`: Σ nats / (ln 2 · Σ bytes), what a compressor would see. `pile_weighted`: Σ wᵢ·BPBᵢ with the byte weights of
the Pile paper's Table 1, made to sum to 1 over the subsets present. `macro`: the plain mean of the subsets. The paper's
own overall row follows from none of them exactly, so a figure without its name means little.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cairn.data.components import pile_weight
from cairn.evaluation.scores import DocumentScore, Totals, bits_per_byte, totals


@dataclass(frozen=True)
class Aggregate:
    """All in bits per byte. `per_subset` leaves out subsets without a byte; so do the means over subsets.

    `pile_weighted` is None where no subset has a weight; `unweighted` names the subsets that it leaves out.
    """

    micro: float
    pile_weighted: float | None
    macro: float
    per_subset: dict[str, float]
    unweighted: tuple[str, ...]


def by_subset(scores: Iterable[DocumentScore]) -> dict[str, Totals]:
    """Totals of each subset, in the order of their names."""
    groups: dict[str, list[DocumentScore]] = {}
    for score in scores:
        groups.setdefault(score.subset, []).append(score)
    return {subset: totals(groups[subset]) for subset in sorted(groups)}


def aggregate(scores: Iterable[DocumentScore]) -> Aggregate:
    """The four figures; raises as `bits_per_byte` does where there is nothing true to say."""
    scores = list(scores)
    micro = bits_per_byte(scores)
    found = {subset: total.bits_per_byte for subset, total in by_subset(scores).items()}
    per_subset = {subset: value for subset, value in found.items() if value is not None}
    weights = {subset: weight for subset in per_subset if (weight := pile_weight(subset)) is not None}
    return Aggregate(
        micro=micro,
        pile_weighted=_weighted(per_subset, weights),
        macro=sum(per_subset.values()) / len(per_subset),
        per_subset=per_subset,
        unweighted=tuple(subset for subset in per_subset if subset not in weights),
    )


def _weighted(values: Mapping[str, float], weights: Mapping[str, float]) -> float | None:
    whole = sum(weights.values())
    return sum(weight * values[subset] for subset, weight in weights.items()) / whole if whole else None
