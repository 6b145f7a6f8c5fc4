"""Aggregates over uneven shards, worked out by hand."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest

from cairn.errors import CairnError, DataError
from cairn.evaluation.aggregate import aggregate, by_subset
from cairn.evaluation.scores import DocumentScore, bits_per_byte, totals

pytestmark = pytest.mark.unit

LN_2 = math.log(2)


def document(line: int, subset: str, byte_count: int, bpb: float) -> DocumentScore:
    return DocumentScore("a.jsonl", line, subset, byte_count, max(1, byte_count // 4), bpb * byte_count * LN_2)


SCORES = [
    document(1, "Github", 900, 1.0),
    document(2, "Github", 100, 2.0),
    document(3, "DM Mathematics", 50, 3.0),
    document(4, "my own notes", 10, 5.0),
]


def test_the_four_figures() -> None:
    found = aggregate(SCORES)
    assert found.per_subset == pytest.approx({"Github": 1.1, "DM Mathematics": 3.0, "my own notes": 5.0})
    assert found.micro == pytest.approx((900 * 1 + 100 * 2 + 50 * 3 + 10 * 5) / 1060)
    assert found.macro == pytest.approx((1.1 + 3.0 + 5.0) / 3)
    assert found.pile_weighted == pytest.approx((7.59 * 1.1 + 1.24 * 3.0) / (7.59 + 1.24))
    assert found.unweighted == ("my own notes",)


def test_no_weight_at_all() -> None:
    found = aggregate(SCORES[3:])
    assert found.pile_weighted is None
    assert found.micro == found.macro == pytest.approx(5.0)


def test_identities() -> None:
    sums = totals(SCORES)
    bpb = bits_per_byte(SCORES)
    assert sums.byte_perplexity == pytest.approx(math.exp(sums.nats / sums.bytes))
    assert bpb * LN_2 * sums.bytes == pytest.approx(sums.nats)
    assert 2**bpb == pytest.approx(sums.byte_perplexity)


def test_order_and_uneven_shards_change_nothing_at_all() -> None:
    rng = random.Random(0)
    scores = [document(i, "Github", rng.randint(1, 10_000), rng.uniform(0.1, 9)) for i in range(1000)]
    expected = bits_per_byte(scores)
    for _ in range(5):
        rng.shuffle(scores)
        assert bits_per_byte(scores) == expected
    cut = [0, 1, 5, 700, 1000]
    shards = [totals(scores[a:b]) for a, b in pairwise(cut)]
    assert sum(shard.nats for shard in shards) / (LN_2 * sum(shard.bytes for shard in shards)) == pytest.approx(
        expected
    )
    mean_of_means = sum(shard.bits_per_byte or 0 for shard in shards) / len(shards)
    assert mean_of_means != pytest.approx(expected, rel=1e-3)


def test_empty_documents_are_counted_but_carry_no_figure() -> None:
    empty = DocumentScore("a.jsonl", 9, "Enron Emails", 0, 0, 0.0)
    assert by_subset([*SCORES, empty])["Enron Emails"].documents == 1
    assert totals([*SCORES, empty]).documents == 5
    assert aggregate([*SCORES, empty]) == aggregate(SCORES)


def test_no_text_is_an_error() -> None:
    with pytest.raises(DataError, match="no text to score in 1 documents"):
        bits_per_byte([DocumentScore("a.jsonl", 1, "Github", 0, 0, 0.0)])
    with pytest.raises(DataError, match="in 0 documents"):
        aggregate([])


@pytest.mark.parametrize("nats", [0.0, -3.0, math.inf, math.nan])
def test_sums_that_cannot_be_true_are_an_error(nats: float) -> None:
    with pytest.raises(CairnError, match="the model is broken"):
        bits_per_byte([DocumentScore("a.jsonl", 1, "Github", 10, 5, nats)])
