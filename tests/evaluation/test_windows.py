"""Rolling windows: the gold cases of the Pile's own code, and every token scored exactly once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.errors import UserError
from cairn.evaluation.windows import rolling_windows

pytestmark = pytest.mark.unit


def test_gold_34_tokens_in_windows_of_10() -> None:
    assert list(rolling_windows(range(34), prefix_token=-100, window=10)) == [
        ([-100, *range(9)], list(range(10))),
        (list(range(9, 19)), list(range(10, 20))),
        (list(range(19, 29)), list(range(20, 30))),
        (list(range(23, 33)), [30, 31, 32, 33]),
    ]


def test_gold_9_tokens_in_windows_of_2() -> None:
    assert list(rolling_windows(range(9), prefix_token=-100, window=2)) == [
        ([-100, 0], [0, 1]),
        ([1, 2], [2, 3]),
        ([3, 4], [4, 5]),
        ([5, 6], [6, 7]),
        ([6, 7], [8]),
    ]


def test_gold_empty() -> None:
    assert list(rolling_windows([], prefix_token=-100, window=2)) == []


def test_a_document_shorter_than_the_window_is_one_window() -> None:
    assert list(rolling_windows([5, 6, 7], prefix_token=1, window=10)) == [([1, 5, 6], [5, 6, 7])]


@settings(deadline=None, database=None)
@given(length=st.integers(0, 80), window=st.integers(1, 20), data=st.data())
def test_every_token_once_each_after_its_predecessor(length: int, window: int, data: st.DataObject) -> None:
    context = data.draw(st.integers(1, window))
    windows = list(rolling_windows(range(length), prefix_token=-1, window=window, context=context))
    assert [target for _, targets in windows for target in targets] == list(range(length))
    for number, (inputs, targets) in enumerate(windows):
        assert len(inputs) == (window if number else min(window, length))
        assert inputs[len(inputs) - len(targets) :] == [target - 1 for target in targets]
        assert number == 0 or len(inputs) - len(targets) >= context - 1


@settings(deadline=None, database=None)
@given(length=st.integers(0, 60), window=st.integers(1, 12), data=st.data())
def test_equal_to_lm_evaluation_harness(length: int, window: int, data: st.DataObject) -> None:
    from lm_eval.utils import get_rolling_token_windows

    context = data.draw(st.integers(1, window))
    theirs = get_rolling_token_windows(list(range(length)), -100, window, context)
    assert list(rolling_windows(range(length), prefix_token=-100, window=window, context=context)) == list(theirs)


@pytest.mark.parametrize(("window", "context"), [(0, 1), (4, 0), (4, 5)])
def test_impossible_windows_are_refused(window: int, context: int) -> None:
    with pytest.raises(UserError, match=f"window of {window} tokens"):
        list(rolling_windows([1, 2], prefix_token=0, window=window, context=context))
