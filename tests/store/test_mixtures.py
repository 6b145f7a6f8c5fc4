"""Mixtures in words: references with weights."""

from __future__ import annotations

import pytest

from cairn.errors import AdapterError
from cairn.store.names import parse_mixture

pytestmark = pytest.mark.unit


def test_mixtures_are_parsed() -> None:
    assert parse_mixture("a") == [("a", 1.0)]
    assert parse_mixture("a:0.7+b@3:-.3+c@prod") == [("a", 0.7), ("b@3", -0.3), ("c@prod", 1.0)]
    assert parse_mixture("a:2.") == [("a", 2.0)]


@pytest.mark.parametrize("weight", ["", "0", "0.000", "-0", "nan", "inf", "1e9", "0x1", "٣", "1:2", " 1", "12345"])
def test_what_is_no_weight_is_refused(weight: str) -> None:
    with pytest.raises(AdapterError, match="cannot be the weight of a"):
        parse_mixture(f"a:{weight}")


@pytest.mark.parametrize("text", ["", "+", "a+", ":0.5", "../x:1", "a:1++b:1", "+".join("a" * 17)])
def test_other_mistakes_are_refused(text: str) -> None:
    with pytest.raises(AdapterError):
        parse_mixture(text)
