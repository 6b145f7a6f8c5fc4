"""The short ways give what the long ones do: spans by outline and by prefixes, tokens one by one and in batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data.templates import FAMILIES, Family
from tests.data.test_template_parity import NAMES, template, tokenizer_for
from tests.tiny import build_tokenizer

from cairn.data.answers import AnswerFinder, AnswerNotFound, Span
from cairn.data.encoding import Encoder, token_range
from cairn.data.outlines import Outlines
from cairn.data.rendering import Renderer, TemplateRefused
from cairn.data.rows import Sample
from cairn.records import Conversation, Message, Source

pytestmark = pytest.mark.slow

TEXTS = (
    "Hi é",
    " Yo ✓\n1 ",
    "<|im_end|>",
    "a",
    "<think>\nhm</think>\nso",
    "<think>\nnever ends",
    "assistant\n",
    "{{ x }}",
    "\n\n",
)
ROLES = (
    ("user", "assistant"),
    ("system", "user", "assistant"),
    ("user", "assistant", "user", "assistant"),
    ("system", "user", "assistant", "user", "assistant", "user"),
)


def both(tokenizer: Any) -> tuple[Renderer, AnswerFinder, Outlines]:
    renderer = Renderer.of(tokenizer, tools=False)
    ends = lambda text: {end for _, end in tokenizer(text, return_offsets_mapping=True)["offset_mapping"]}  # noqa: E731
    finder = AnswerFinder.probe(lambda said, prompt: renderer.text(said, prompt=prompt), ends)
    return renderer, finder, Outlines(renderer.text, finder.spans, finder.tails)


def compare(tokenizer: Any) -> int:
    """How many conversations the short way was taken for; every span is the long way's."""
    renderer, finder, outlines = both(tokenizer)
    long_ways = 0

    def find(messages: Sequence[dict[str, Any]], text: str) -> list[Span]:
        nonlocal long_ways
        long_ways += 1
        return finder.spans(messages, text)

    outlines._find = find
    asked = 0
    for roles in ROLES:
        for shift in range(len(TEXTS)):
            messages = [{"role": role, "content": TEXTS[(i * 2 + shift) % len(TEXTS)]} for i, role in enumerate(roles)]
            try:
                text = renderer.text(messages)
                expected = finder.spans(messages, text)
            except (TemplateRefused, AnswerNotFound):
                continue
            assert outlines.spans(messages, text) == expected, messages
            asked += 1
    return asked - long_ways


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.name != "generation marks"], ids=lambda f: f.name)
def test_spans_by_outline_are_the_spans_by_prefixes(family: Family) -> None:
    assert compare(family.tokenizer()) > 0


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("_training")])
def test_spans_by_outline_are_the_spans_by_prefixes_in_real_templates(name: str) -> None:
    try:
        both(tokenizer_for(template(name)))
    except (AnswerNotFound, TemplateRefused):
        return
    compare(tokenizer_for(template(name)))


def test_a_conversation_laid_out_like_one_before_is_rendered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = []
    plain = Renderer._render
    monkeypatch.setattr(Renderer, "_render", lambda self, *args, **kw: rendered.append(1) or plain(self, *args, **kw))
    encoder = Encoder(build_tokenizer(), 1000)
    for i in range(10):
        turns = (("user", f"q{i}"), ("assistant", f"a{i}"), ("user", "more"), ("assistant", " b\n"))
        sample = encoder.conversation(Conversation(Source("f", i), tuple(Message(*turn) for turn in turns)))
        assert isinstance(sample, Sample)
    assert len(rendered) < 10 + 20


def trimming_tokenizer() -> Any:
    """Trims the blanks off its offsets, so that a token of blanks has no width."""
    from tokenizers import processors

    tokenizer = build_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    return tokenizer


TOKENIZERS = {"bytes": build_tokenizer(), "trimmed": trimming_tokenizer()}


@given(st.text(max_size=40), st.integers(0, 40), st.integers(0, 40), st.sampled_from(sorted(TOKENIZERS)))
@settings(max_examples=300, deadline=None)
def test_the_tokens_of_a_span_are_those_that_begin_in_it(text: str, one: int, other: int, kind: str) -> None:
    start, end = sorted((min(one, len(text)), min(other, len(text))))
    encoded = TOKENIZERS[kind]([text], return_offsets_mapping=True)
    starts, ends = np.array(encoded["offset_mapping"][0], dtype=int).reshape(-1, 2).T
    begin = (starts >= start) & (starts < end) & ((ends > starts) | (starts > start))
    expected = np.flatnonzero(begin)
    first, last = token_range(encoded.encodings[0], start, end)
    if kind == "bytes" or (last > first and ends[first] > starts[first]):
        assert list(range(first, last)) == expected.tolist()
    else:
        assert set(range(first, last)) <= {*expected.tolist()}


def test_blanks_at_the_end_of_a_prompt_are_not_of_the_answer() -> None:
    tokenizer = trimming_tokenizer()
    turns = (Message("user", "q"), Message("assistant", " a \n b "))
    sample = Encoder(tokenizer, 1000).conversation(Conversation(Source("f", 1), turns))
    assert isinstance(sample, Sample)
    assert tokenizer.decode(sample.tokens[1:][sample.weights > 0]) == " a \n b <|im_end|>"


def test_many_at_once_are_as_one_by_one() -> None:
    encoder = Encoder(build_tokenizer(), 60)
    made = [
        Conversation(Source("f", i), (Message("user", "q" * (i % 40)), Message("assistant", "a" * (i % 7))))
        for i in range(600)
    ]
    for one, many in zip(made, encoder.conversations(made), strict=True):
        alone = Encoder(build_tokenizer(), 60).conversation(one) if one.source.line % 50 == 0 else many
        assert type(alone) is type(many)
        if isinstance(alone, Sample) and isinstance(many, Sample):
            assert alone.tokens.tolist() == many.tokens.tolist()
            assert alone.weights.tolist() == many.weights.tolist()
            assert alone.source_bytes == many.source_bytes
