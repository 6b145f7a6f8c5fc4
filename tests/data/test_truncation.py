"""What truncation takes and what survives it: headers and answers whole, counts of every cut, at every length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.tiny import build_tokenizer

from cairn.data.drops import CutReason, Dropped, DropReason
from cairn.data.encoding import Encoder
from cairn.data.rows import Sample
from cairn.records import Conversation, Message, Source

pytestmark = pytest.mark.unit

HERE = Source("f.jsonl", 1)
TOKENIZER = build_tokenizer()
ANSWERS = ("answer one", "answer two", "answer three")
ASKS = ("first abcdefghij", "second klmnopqrst", "third uvwxyzäöü")


def talk(*exchanges: int, system: bool = True, weights: tuple[float, ...] = (1, 1, 1)) -> Conversation:
    turns = [Message("system", "S")] if system else []
    for i in exchanges:
        turns += [Message("user", ASKS[i]), Message("assistant", ANSWERS[i], weight=weights[i])]
    return Conversation(HERE, tuple(turns))


def text(sample: Any) -> str:
    assert isinstance(sample, Sample), sample
    return str(TOKENIZER.decode(sample.tokens))


def size(conversation: Conversation) -> int:
    sample = Encoder(TOKENIZER, 10_000).conversation(conversation)
    assert isinstance(sample, Sample)
    return len(sample)


def rendered(conversation: Conversation) -> str:
    return text(Encoder(TOKENIZER, 10_000).conversation(conversation))


@pytest.mark.parametrize("policy", ["keep_start", "keep_end"])
def test_at_every_length_headers_and_answers_are_whole_and_every_cut_is_counted(policy: Any) -> None:
    whole = talk(0, 1, 2)
    kept = 0
    for length in range(1, size(whole) + 1):
        encoder = Encoder(TOKENIZER, length, policy)
        sample = encoder.conversation(whole)
        if isinstance(sample, Dropped):
            assert sample.reason is DropReason.TOO_LONG
            assert kept == 0
            assert not encoder.cuts
            continue
        kept += 1
        assert len(sample) <= length
        assert bool(encoder.cuts) == (length < size(whole))
        said = text(sample)
        assert said.startswith("<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n")
        assert said.endswith("<|im_end|>\n")
        assert said.count("<|im_start|>") == said.count("<|im_end|>\n")
        labels = TOKENIZER.decode(sample.tokens[1:][sample.weights > 0])
        assert labels in {"".join(f"{a}<|im_end|>" for a in some) for some in (ANSWERS[:n] for n in (1, 2, 3))} | {
            "".join(f"{a}<|im_end|>" for a in some) for some in (ANSWERS[1:], ANSWERS[2:])
        }
    assert kept > 50


@pytest.mark.parametrize(
    ("policy", "left", "reason"),
    [("keep_start", (0, 1), CutReason.NEWEST_TURNS), ("keep_end", (1, 2), CutReason.OLDEST_TURNS)],
)
def test_whole_exchanges_go_first(policy: Any, left: tuple[int, ...], reason: CutReason) -> None:
    encoder = Encoder(TOKENIZER, size(talk(0, 1, 2)) - 1, policy)
    assert text(encoder.conversation(talk(0, 1, 2))) == rendered(talk(*left))
    assert encoder.cuts == {reason: 1}


@pytest.mark.parametrize(
    ("policy", "left", "reason"),
    [("keep_start", "third uv", CutReason.PROMPT_END), ("keep_end", "xyzäöü", CutReason.PROMPT_START)],
)
def test_the_text_of_one_prompt_is_cut_at_a_whole_character(policy: Any, left: str, reason: CutReason) -> None:
    shorter = Conversation(HERE, (Message("user", left), Message("assistant", ANSWERS[2])))
    encoder = Encoder(TOKENIZER, size(shorter), policy)
    assert text(encoder.conversation(talk(2, system=False))) == rendered(shorter)
    assert encoder.cuts == {reason: 1}


def test_a_character_of_many_tokens_is_kept_whole_or_cut() -> None:
    shorter = Conversation(HERE, (Message("user", "third uvwxyzäö"), Message("assistant", ANSWERS[2])))
    for length in (size(shorter), size(shorter) + 1):
        assert text(Encoder(TOKENIZER, length, "keep_start").conversation(talk(2, system=False))) == rendered(shorter)


@pytest.mark.parametrize("policy", ["keep_start", "keep_end"])
def test_the_exchange_that_trains_is_the_one_that_stays(policy: Any) -> None:
    weights = (0.0, 1.0, 0.0)
    encoder = Encoder(TOKENIZER, size(talk(1)) - 3, policy)
    sample = encoder.conversation(talk(0, 1, 2, weights=weights))
    assert ANSWERS[1] in text(sample)
    assert ANSWERS[0] not in text(sample)
    assert encoder.cuts[CutReason.OLDEST_TURNS] == encoder.cuts[CutReason.NEWEST_TURNS] == 1
    last = Encoder(TOKENIZER, size(talk(2)) - 3, policy, train_on="last").conversation(talk(0, 1, 2))
    assert ANSWERS[2] in text(last)


def test_an_answer_that_does_not_fit_alone_is_dropped_and_says_so() -> None:
    for policy in ("keep_start", "keep_end"):
        bare = Conversation(HERE, (Message("user", "t"), Message("assistant", ANSWERS[2])))
        sample = Encoder(TOKENIZER, size(bare) - 1, policy).conversation(talk(2, system=False))  # type: ignore[arg-type]
        found = size(talk(2, system=False))
        detail = f"{found} positions, {size(bare) - 1} fit, an answer with its headers does not"
        assert sample == Dropped(DropReason.TOO_LONG, detail)


def test_tokens_that_merge_when_text_is_cut_cost_another_try() -> None:
    sample = Encoder(TOKENIZER, 60, "keep_end").conversation(
        Conversation(HERE, (Message("user", "word " * 500), Message("assistant", "yes")))
    )
    assert isinstance(sample, Sample)
    assert len(sample) == 60
    assert np.count_nonzero(sample.weights) == 4
