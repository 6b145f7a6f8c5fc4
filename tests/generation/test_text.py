"""Text comes whole: no half character, no part of a stop string, nothing lost and nothing twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiny import build_tokenizer

from cairn.generation.text import REPLACEMENT, StopMatcher, TextStream

pytestmark = pytest.mark.unit

TOKENIZER = build_tokenizer()
TEXTS = ("plain", "naïve café", "日本語のテキスト", "a😀b👩‍👩‍👧c", "é" * 30)


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_are_whole_characters_and_add_up(text: str) -> None:
    stream = TextStream(TOKENIZER)
    pieces = [stream.push(token) for token in TOKENIZER(text)["input_ids"]]
    assert "".join(pieces) == text
    assert not any(REPLACEMENT in piece for piece in pieces)
    assert len([piece for piece in pieces if piece]) == len(text), "each character comes as soon as it is whole"


@given(st.text(max_size=40))
def test_any_text_survives(text: str) -> None:
    stream = TextStream(TOKENIZER)
    expected = TOKENIZER.decode(TOKENIZER(text)["input_ids"], skip_special_tokens=True)
    got = "".join(stream.push(token) for token in TOKENIZER(text)["input_ids"])
    assert got == expected.rstrip(REPLACEMENT)


def test_a_half_character_at_the_end_is_left_out() -> None:
    stream = TextStream(TOKENIZER)
    assert "".join(stream.push(token) for token in TOKENIZER("ok 😀")["input_ids"][:-1]) == "ok "


def test_broken_bytes_do_not_stall_the_stream() -> None:
    stream = TextStream(TOKENIZER)
    continuation = TOKENIZER("é")["input_ids"][1]
    got = "".join(stream.push(continuation) for _ in range(30))
    assert len(got) == 22
    assert set(got) == {REPLACEMENT}


def test_special_tokens_show_no_text() -> None:
    stream = TextStream(TOKENIZER)
    assert [stream.push(TOKENIZER.eos_token_id), stream.push(TOKENIZER("a")["input_ids"][0])] == ["", "a"]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_stop_strings_match_across_any_borders(size: int) -> None:
    text = "one two END three"
    matcher = StopMatcher(["END", "never"])
    shown = ""
    for start in range(0, len(text), size):
        piece, stopped = matcher.push(text[start : start + size])
        shown += piece
        assert "E" not in shown, "the beginning of a stop string must not be shown"
        if stopped:
            break
    assert stopped
    assert shown == "one two "


def test_a_false_beginning_is_shown_after_all() -> None:
    matcher = StopMatcher(["\n\nUser:"])
    assert matcher.push("a\n\nUs") == ("a", False)
    assert matcher.push("age") == ("\n\nUsage", False)
    assert matcher.push("\n") == ("", False)
    assert matcher.flush() == "\n"
    assert matcher.flush() == ""


def test_the_first_of_several_stops_wins() -> None:
    assert StopMatcher(["three", "two"]).push("one two three") == ("one ", True)
