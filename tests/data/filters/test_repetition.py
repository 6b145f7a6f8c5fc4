"""Counting in bulk finds what counting one by one finds."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from tests.data.filters.verdicts import document, reason

from cairn.data.view import View, repeated

pytestmark = pytest.mark.unit


def texts() -> list[str]:
    chance = random.Random(7)
    found = []
    for vocabulary in (2, 5, 20, 60):
        words = [f"{'w' * chance.randint(1, 9)}{i}" for i in range(vocabulary)]
        for length in (1, 3, 12, 80, 300):
            found.append(" ".join(chance.choice(words) for _ in range(length)))
            found.append(found[-1] + " " + " ".join(f"n{i}" for i in range(2 * length)))
    return found


def most_frequent(words: list[str], n: int) -> tuple[int, int]:
    counts = Counter(" ".join(words[i : i + n]) for i in range(len(words) - n + 1))
    gram, count = counts.most_common(1)[0] if counts else ("", 0)
    return count, len(gram) * count


def repeated_characters(words: list[str], n: int) -> int:
    seen: set[str] = set()
    position = characters = 0
    while position <= len(words) - n:
        gram = " ".join(words[position : position + n])
        step = n if gram in seen else 1
        characters += sum(map(len, words[position : position + n])) if gram in seen else 0
        seen.add(gram)
        position += step
    return characters


@pytest.mark.parametrize("limit", [0.02, 0.1, 0.3, 0.6])
def test_the_shares_are_those_of_the_definition(limit):
    verdicts = set()
    for text in texts():
        for n in (2, 3, 4):
            count, characters = most_frequent(text.split(), n)
            expected = f"most frequent {n}-gram" if count > 1 and characters / len(text) > limit else None
            assert reason("gopher_repetition", text, top_grams={n: limit}, repeated_grams={}) == expected
            verdicts.add(expected)
        for n in (5, 7, 10):
            share = repeated_characters(text.split(), n) / len(text)
            expected = f"repeated {n}-grams" if share > limit else None
            assert reason("gopher_repetition", text, top_grams={}, repeated_grams={n: limit}) == expected
            verdicts.add(expected)
    assert len(verdicts) > 3


def test_several_limits_find_what_each_finds_alone():
    limits = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.1}
    for text in texts():
        shares = {n: repeated_characters(text.split(), n) / len(text) for n in limits}
        expected = next((f"repeated {n}-grams" for n, limit in limits.items() if shares[n] > limit), None)
        assert reason("gopher_repetition", text, top_grams={}) == expected


def test_what_a_view_finds():
    view = View(document(' One,\ttwo "three" -\n\n\n  four\u2026 \n \nfour…'))
    assert view.lines == ['One,\ttwo "three" -', "four…", "four…"]
    assert view.paragraphs == ['One,\ttwo "three" -', "four… \n \nfour…"]
    assert view.words == ["One,", "two", '"three"', "-", "four…", "four…"]
    assert view.bare_words == ["One", "two", "three", "four", "four"]
    assert view.repeated_lines == (1, 5)
    assert repeated(["a", "bb", "a", "bb", "a"]) == (3, 4)
