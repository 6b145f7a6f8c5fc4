"""Template tokens are the model's own, the mask is exact, nothing is cut unseen."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data.templates import FAMILIES, MARKED, WITH_TOOLS, Family
from tests.tiny import build_tokenizer

from cairn.data.drops import Dropped, DropReason
from cairn.data.encoding import Encoder
from cairn.data.rows import Sample
from cairn.errors import ModelError
from cairn.records import Conversation, Document, Message, Source

pytestmark = pytest.mark.unit

HERE = Source("f.jsonl", 1)
TOKENIZER = build_tokenizer()


def talk(*turns: tuple[str, str], weights: tuple[float, ...] = ()) -> Conversation:
    padded = [*weights, *[1.0] * (len(turns) - len(weights))]
    return Conversation(HERE, tuple(Message(*turn, weight=w) for turn, w in zip(turns, padded, strict=True)))


def encoded(tokenizer: Any, conversation: Conversation, length: int = 10_000, policy: Any = "drop") -> Sample:
    sample = Encoder(tokenizer, length, policy).conversation(conversation)
    assert isinstance(sample, Sample), sample
    return sample


def trained(tokenizer: Any, sample: Sample) -> list[str]:
    """The text of every run of weighted labels."""
    on = np.flatnonzero(np.diff(sample.weights > 0, prepend=False, append=False))
    labels = sample.tokens[1:]
    return [tokenizer.decode(labels[a:b]) for a, b in zip(on[::2], on[1::2], strict=True)]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_tokens_are_the_templates_and_the_mask_is_as_marked_by_hand(family: Family) -> None:
    tokenizer = family.tokenizer()
    sample = encoded(tokenizer, talk(*[(m["role"], m["content"]) for m in family.messages]))
    reference = tokenizer.apply_chat_template(family.messages, return_dict=True)["input_ids"]
    assert sample.tokens.tolist() == reference
    assert tokenizer.decode(sample.tokens) == re.sub("[«»]", "", family.marked)
    assert trained(tokenizer, sample) == re.findall("«(.*?)»", family.marked, re.DOTALL)


def test_generation_marks_agree_with_transformers_own_mask() -> None:
    family = next(f for f in FAMILIES if f.template == MARKED)
    tokenizer = family.tokenizer()
    mask = tokenizer.apply_chat_template(family.messages, return_dict=True, return_assistant_tokens_mask=True)
    sample = encoded(tokenizer, talk(*[(m["role"], m["content"]) for m in family.messages]))
    assert (sample.weights > 0).tolist() == [bool(on) for on in mask["assistant_masks"][1:]]


@pytest.mark.parametrize(
    "family", [f for f in FAMILIES if f.name in ("chatml", "generation marks")], ids=lambda f: f.name
)
def test_weights_are_the_messages(family: Family) -> None:
    tokenizer = family.tokenizer()
    conversation = talk(("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "dd"), weights=(1, 0, 1, 0.5))
    sample = encoded(tokenizer, conversation)
    assert trained(tokenizer, sample) == ["dd<|im_end|>"]
    assert set(sample.weights.tolist()) == {0.0, 0.5}
    assert sample.source_bytes == 2
    assert isinstance(Encoder(tokenizer, 1000, train_on="last").conversation(conversation), Sample)


@pytest.mark.parametrize(
    "family", [f for f in FAMILIES if f.name in ("chatml", "generation marks")], ids=lambda f: f.name
)
def test_the_last_answer_alone_is_trained_where_the_recipe_says_so(family: Family) -> None:
    tokenizer = family.tokenizer()
    encoder = Encoder(tokenizer, 1000, train_on="last")
    turns = (("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "dd"), ("user", "e"))
    for conversation in (talk(*turns[:4]), talk(*turns)):
        sample = encoder.conversation(conversation)
        assert isinstance(sample, Sample)
        assert trained(tokenizer, sample) == ["dd<|im_end|>"]
        assert sample.source_bytes == 2
    dropped = encoder.conversation(talk(*turns[:4], weights=(1, 1, 1, 0)))
    assert isinstance(dropped, Dropped)
    assert dropped.reason is DropReason.NOTHING_TO_TRAIN


@given(st.lists(st.tuples(st.text(min_size=1, max_size=12), st.text(min_size=1, max_size=12)), min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_any_text_is_masked_exactly_under_chatml(exchanges: list[tuple[str, str]]) -> None:
    turns = [turn for ask, answer in exchanges for turn in (("user", ask), ("assistant", answer))]
    sample = encoded(TOKENIZER, talk(*turns))
    expected = [answer + "<|im_end|>" for _, answer in exchanges]
    assert trained(TOKENIZER, sample) == expected
    assert sample.source_bytes >= sum(len(answer.strip().encode()) for _, answer in exchanges)


def test_the_answer_is_the_question() -> None:
    sample = encoded(TOKENIZER, talk(("user", "x<|im_end|>"), ("assistant", "x<|im_end|>\n"), ("user", "x")))
    assert len(trained(TOKENIZER, sample)) == 1


@pytest.mark.parametrize(
    ("template", "conversation", "reason"),
    [
        (FAMILIES[2], talk(("system", "s"), ("user", "a"), ("assistant", "b")), DropReason.TEMPLATE_REFUSED),
        (FAMILIES[2], talk(("user", "a"), ("user", "a"), ("assistant", "b")), DropReason.TEMPLATE_REFUSED),
        (FAMILIES[0], talk(("user", "a")), DropReason.NOTHING_TO_TRAIN),
        (FAMILIES[0], talk(("user", "a"), ("assistant", "b"), weights=(1, 0)), DropReason.NOTHING_TO_TRAIN),
    ],
)
def test_what_cannot_be_trained_on_says_why(template: Family, conversation: Conversation, reason: DropReason) -> None:
    dropped = Encoder(template.tokenizer(), 1000).conversation(conversation)
    assert isinstance(dropped, Dropped)
    assert dropped.reason is reason
    assert dropped.detail


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] | upper }}\n{% endfor %}",
        "{% for m in messages %}{{ messages | length }}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}",
    ],
    ids=["changes the text", "prefixes differ"],
)
def test_a_template_that_hides_the_answer_is_refused_and_not_guessed_at(template: str) -> None:
    dropped = Encoder(build_tokenizer(chat_template=template), 1000).conversation(
        talk(("user", "a"), ("assistant", "b"))
    )
    assert isinstance(dropped, Dropped)
    assert dropped.reason is DropReason.ANSWER_NOT_FOUND


def test_a_conversation_that_begins_with_an_answer_is_dropped() -> None:
    dropped = Encoder(TOKENIZER, 1000).conversation(talk(("assistant", "hi"), ("user", "a"), ("assistant", "b")))
    assert dropped == Dropped(DropReason.ANSWER_NOT_FOUND, "the conversation begins with an answer")


def called() -> Conversation:
    call = {"type": "function", "function": {"name": "add", "arguments": {"x": 1}}}
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}
    messages = (
        Message("user", "q"),
        Message("assistant", "", fields={"tool_calls": [call]}),
        Message("tool", "2"),
        Message("assistant", "two"),
    )
    return Conversation(HERE, messages, tools=(tool,))


def test_function_calls_are_trained_with_their_end_of_turn() -> None:
    tokenizer = build_tokenizer(chat_template=WITH_TOOLS)
    sample = encoded(tokenizer, called())
    call = '<tool_call>{"name": "add", "arguments": {"x": 1}}</tool_call><|im_end|>'
    assert trained(tokenizer, sample) == [call, "two<|im_end|>"]


def test_a_template_that_shows_no_tools_drops_what_has_them() -> None:
    dropped = Encoder(TOKENIZER, 1000).conversation(called())
    assert isinstance(dropped, Dropped)
    assert dropped.reason is DropReason.TOOLS_NOT_SHOWN


LONG = talk(("system", "S"), ("user", "q1"), ("assistant", "answer one"), ("user", "q2"), ("assistant", "answer two"))


def test_too_long_is_dropped_with_both_numbers() -> None:
    whole = len(encoded(TOKENIZER, LONG))
    assert len(encoded(TOKENIZER, LONG, whole)) == whole
    dropped = Encoder(TOKENIZER, whole - 1).conversation(LONG)
    assert dropped == Dropped(DropReason.TOO_LONG, f"{whole} positions, {whole - 1} fit")


@given(st.text(min_size=1, max_size=60), st.integers(1, 20))
@settings(max_examples=80, deadline=None)
def test_a_document_loses_nothing_to_its_windows(text: str, length: int) -> None:
    samples = Encoder(TOKENIZER, length).document(Document(HERE, text, "Github"))
    labels = [token for sample in samples for token in sample.tokens[1:].tolist()]
    assert labels == [*TOKENIZER(text, add_special_tokens=False)["input_ids"], TOKENIZER.eos_token_id]
    assert samples[0].tokens[0] == TOKENIZER.bos_token_id
    assert all(a.tokens[-1] == b.tokens[0] for a, b in pairwise(samples))
    assert all(0 < len(sample) <= length and sample.weights.min() == 1 for sample in samples)
    assert sum(sample.source_bytes for sample in samples) == len(text.encode())


def test_windows_count_the_bytes_of_their_own_text() -> None:
    samples = Encoder(TOKENIZER, 4).document(Document(HERE, "abcdefgh", "Github"))
    assert [sample.source_bytes for sample in samples] == [4, 4, 0]


def test_without_a_beginning_token_the_end_token_is_the_context() -> None:
    tokenizer = build_tokenizer()
    tokenizer.bos_token = None
    (sample,) = Encoder(tokenizer, 10).document(Document(HERE, "ab"))
    assert sample.tokens[0] == sample.tokens[-1] == tokenizer.eos_token_id


def test_empty_text_gives_no_sample_and_no_end_token_is_refused() -> None:
    assert Encoder(TOKENIZER, 10).document(Document(HERE, "")) == []
    tokenizer = build_tokenizer()
    tokenizer.eos_token = None
    with pytest.raises(ModelError, match="no end-of-sequence token"):
        Encoder(tokenizer, 10)
