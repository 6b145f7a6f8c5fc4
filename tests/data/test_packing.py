"""Packing loses nothing, exceeds nothing, keeps samples apart, and fills rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data.samples import assert_rows_equal, make_samples

from cairn.data.packing import pack, row_of

pytestmark = pytest.mark.unit

LENGTH = 64


@given(st.lists(st.integers(1, LENGTH), max_size=60))
@settings(max_examples=150, deadline=None)
def test_every_sample_stands_whole_in_exactly_one_row(lengths: list[int]) -> None:
    samples = make_samples(lengths, weighted=True)
    found = {}
    for row in pack(samples, LENGTH):
        assert 0 < len(row) <= LENGTH
        assert row.segments[0] == 1
        assert set(np.diff(row.segments)) <= {0, 1}
        for index, source in enumerate(row.sources):
            at = row.segments == index + 1
            assert source not in found
            found[source] = (
                row.tokens[at],
                row.labels[at],
                row.weights[at],
                row.positions[at],
                row.source_bytes[index],
            )
    assert set(found) == {sample.source for sample in samples}
    for sample in samples:
        tokens, labels, weights, positions, source_bytes = found[sample.source]
        assert np.array_equal(tokens, sample.tokens[:-1])
        assert np.array_equal(labels, sample.tokens[1:])
        assert np.array_equal(weights, sample.weights)
        assert np.array_equal(positions, np.arange(len(sample)))
        assert source_bytes == sample.source_bytes


@given(st.lists(st.integers(1, LENGTH), min_size=1, max_size=60))
@settings(max_examples=100, deadline=None)
def test_at_most_one_row_is_half_empty(lengths: list[int]) -> None:
    half_empty = [row for row in pack(make_samples(lengths), LENGTH) if len(row) <= LENGTH // 2]
    assert len(half_empty) <= 1


def test_rows_of_text_like_lengths_are_nearly_full() -> None:
    lengths = np.clip(np.random.default_rng(1).lognormal(5.0, 0.8, 2000).astype(int), 1, 1024).tolist()
    rows = list(pack(make_samples(lengths), 1024))
    assert sum(lengths) / (len(rows) * 1024) > 0.99


def test_best_fit_takes_the_fullest_row_that_holds_it() -> None:
    rows = list(pack(make_samples([40, 50, 14, 20, 4]), LENGTH))
    assert [sorted(int(source.split(":")[1]) for source in row.sources) for row in rows] == [[1, 2], [0, 3, 4]]


def test_packing_is_deterministic() -> None:
    lengths = np.random.default_rng(2).integers(1, LENGTH, 200).tolist()
    for one, other in zip(pack(make_samples(lengths), LENGTH), pack(make_samples(lengths), LENGTH), strict=True):
        assert_rows_equal(one, other)


def test_a_sample_longer_than_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match="a sample of 65 positions, a row has 64"):
        list(pack(make_samples([65]), LENGTH))


def test_a_row_of_two_samples() -> None:
    row = row_of(make_samples([2, 3]))
    assert row.segments.tolist() == [1, 1, 2, 2, 2]
    assert row.positions.tolist() == [0, 1, 0, 1, 2]
    assert (row.tokens.dtype, row.segments.dtype, row.weights.dtype) == (np.int32, np.int32, np.float32)
