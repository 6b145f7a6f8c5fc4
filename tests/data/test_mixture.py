"""Datasets mixed by rows or by weight, in three arrangements, with ends that are what the docstring says."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from cairn.data.mixture import Arrangement, Mixture
from cairn.errors import UserError

pytestmark = pytest.mark.unit

SIZES = (6, 30, 12)
STARTS = (0, 6, 36)


def mixture(**settings: object) -> Mixture:
    return Mixture.of(SIZES, fingerprint="f", **settings)  # type: ignore[arg-type]


def per_dataset(rows: np.ndarray) -> list[int]:
    return np.bincount(np.searchsorted(STARTS, rows, side="right") - 1, minlength=len(SIZES)).tolist()


@pytest.mark.parametrize("arrangement", ["shuffled", "interleaved", "concatenated"])
def test_without_weights_an_epoch_is_every_row_once(arrangement: Arrangement) -> None:
    for epoch in (0, 1):
        rows = mixture(arrangement=arrangement).order(3, epoch)
        assert sorted(rows.tolist()) == list(range(sum(SIZES)))


def test_epochs_and_seeds_differ_and_the_same_ones_do_not() -> None:
    first = mixture().order(3, 0).tolist()
    assert first == mixture().order(3, 0).tolist()
    assert first != mixture().order(3, 1).tolist()
    assert first != mixture().order(4, 0).tolist()


def test_the_first_to_be_seen_whole_ends_the_epoch() -> None:
    mixed = mixture(weights=(1.0, 2.0, 1.0), ends="first")
    rows = mixed.order(0, 0)
    assert per_dataset(rows) == [6, 12, 6]
    assert max(Counter(rows.tolist()).values()) == 1


def test_the_last_to_be_seen_whole_ends_the_epoch() -> None:
    mixed = mixture(weights=(1.0, 2.0, 1.0), ends="all")
    rows = mixed.order(0, 0)
    assert per_dataset(rows) == [15, 30, 15]
    assert set(rows.tolist()) == set(range(sum(SIZES)))


def test_the_next_epoch_begins_with_what_was_left() -> None:
    mixed = mixture(weights=(1.0, 1.0, 1.0), ends="first")
    seen = np.concatenate([mixed.order(7, epoch) for epoch in range(5)])
    large = Counter(row for row in seen.tolist() if 6 <= row < 36)
    assert len(large) == 30
    assert set(large.values()) == {1}


def test_a_weight_of_none_is_the_datasets_size() -> None:
    assert per_dataset(mixture(weights=(12.0, None, None), ends="all").order(0, 0)) == [12, 30, 12]


def test_concatenated_comes_one_after_the_other() -> None:
    rows = mixture(arrangement="concatenated").order(0, 0)
    assert per_dataset(rows[:6]) == [6, 0, 0]
    assert per_dataset(rows[6:36]) == [0, 30, 0]


def test_interleaved_keeps_the_proportion_everywhere() -> None:
    rows = mixture(arrangement="interleaved").order(0, 0)
    for end in range(8, len(rows) + 1, 8):
        for count, size in zip(per_dataset(rows[:end]), SIZES, strict=True):
            assert abs(count - end * size / sum(SIZES)) <= 1


def test_a_weighted_dataset_without_rows_is_refused() -> None:
    with pytest.raises(UserError, match="has no rows"):
        Mixture.of((3, 0), fingerprint="f", weights=(1.0, 1.0))
