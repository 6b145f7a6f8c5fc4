"""Where the assistant's answers stand in a rendered conversation, as spans of characters.

Derived from the model's own template by rendering prefixes, never from a table of templates: the text up to an answer
is the rendering of the messages before it with the generation prompt, and what closes an answer is what two probe
conversations have in common after it. A template whose prefixes do not agree raises AnswerNotFound: no guess is
trained on. Costs one rendering per answer, and three per tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

ASK, ANSWER, NEXT = "cairn-question", "cairn-answer", "cairn-next"
"""Probe texts; they hold no whitespace, so templates that trim leave them alone."""

END_OF_THOUGHT = "</think>"
"""Templates of reasoning models show only what follows it in earlier turns."""

Render = Callable[[Sequence[dict[str, Any]], bool], str]
"""(messages, add_generation_prompt) → text."""

TokenEnds = Callable[[str], set[int]]
"""text → the character at which each of its tokens ends."""


class AnswerNotFound(Exception):
    """The template's prefixes do not settle which characters are the assistant's."""


@dataclass(frozen=True)
class Span:
    """Characters [start, end) that are trained; the answer itself is [start, content_end), the rest closes the turn."""

    start: int
    content_end: int
    end: int


@dataclass(frozen=True)
class AnswerFinder:
    """`header` is what stands between the generation prompt and an answer, `closing` what ends an answer's turn.

    Some templates end no turn, only the conversation: `final_closing` ends an answer that is the last message.
    """

    render: Render
    header: str
    closing: str
    final_closing: str

    @classmethod
    def probe(cls, render: Render, token_ends: TokenEnds) -> AnswerFinder:
        """Learn header and closing from probe conversations. Template errors pass through."""
        asked: list[dict[str, Any]] = [{"role": "user", "content": ASK}]
        answered = [*asked, {"role": "assistant", "content": ANSWER}]
        alone = render(answered, False)
        followed = render([*answered, {"role": "user", "content": NEXT}], False)
        prompt = render(asked, True)
        if ANSWER not in alone or ANSWER not in followed:
            raise AnswerNotFound("the template does not show an assistant's text")
        opening = followed[: followed.index(ANSWER)]
        header = opening.removeprefix(prompt) if opening.startswith(prompt) else None
        if header is None:
            opening = alone[: alone.index(ANSWER)]
            if not opening.startswith(prompt):
                raise AnswerNotFound("the generation prompt is not how the template opens an answer")
            header = ""
        after_alone, after_followed = (text[text.index(ANSWER) + len(ANSWER) :] for text in (alone, followed))
        closing = _common(after_alone, after_followed, token_ends).rstrip()
        return cls(render, header if header.strip() else "", closing, closing or after_alone.rstrip())

    def spans(self, messages: Sequence[dict[str, Any]], text: str) -> list[Span]:
        """The span of every assistant message of `messages`, whose rendering is `text`."""
        answers = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        starts = [self._start(messages[:i], text) for i in answers]
        limits = [*starts[1:], len(text)]
        closings = [self.final_closing if i == len(messages) - 1 else self.closing for i in answers]
        found = zip(answers, starts, limits, closings, strict=True)
        return [_span(messages[i], text[:limit], start, closing.strip()) for i, start, limit, closing in found]

    def _start(self, before: Sequence[dict[str, Any]], text: str) -> int:
        if not before:
            raise AnswerNotFound("the conversation begins with an answer")
        prompt = self.render(before, True) + self.header
        if not text.startswith(prompt):
            raise AnswerNotFound(f"the prompt before message {len(before)} is no prefix of the whole conversation")
        return len(prompt)


def _span(message: dict[str, Any], text: str, start: int, mark: str) -> Span:
    """The answer between `start` and the end of `text`, which is where the next answer begins; `mark` closes it."""
    content = _shown(message["content"], text[start:])
    at = text.find(content, start)
    if at < 0 or (mark and mark in text[start:at]):
        raise AnswerNotFound("the template changes an answer's text")
    content_end = at + len(content)
    if not mark:
        return Span(start, content_end, content_end)
    found = re.compile(rf"\s*{re.escape(mark)}").match(text, content_end)
    if found:
        return Span(start, content_end, found.end())
    end = text.find(mark, content_end)
    if end < 0 or message.keys() <= {"role", "content"}:
        raise AnswerNotFound("an answer is not followed by the template's end of turn")
    return Span(start, end, end + len(mark))


def _common(one: str, other: str, token_ends: TokenEnds) -> str:
    """The longest common beginning that ends with a whole token of both: `<|end|>` and `<|eos|>` share no `<|`."""
    agreed = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    shared = token_ends(one) & token_ends(other)
    return one[: max((end for end in shared if end <= agreed), default=0)]


def _shown(content: str, region: str) -> str:
    """The part of an answer that a template shows: trimmed, in earlier turns of some without its thoughts."""
    whole = content.strip()
    if whole not in region and END_OF_THOUGHT in whole:
        return whole.rpartition(END_OF_THOUGHT)[2].strip()
    return whole
