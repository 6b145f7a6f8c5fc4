"""Where the assistant's answers stand in a rendered conversation, as spans of characters.

Derived from the model's own template by rendering prefixes, never from a table of templates: an answer begins where
the messages before it, rendered with the generation prompt, end; it ends where the messages up to it, rendered alone,
end, with what the template closes a turn with. So what a model has to say after the prompt is trained, an empty block
of thoughts included. How a template opens and closes an answer is learned from probe conversations. A template whose
prefixes do not agree raises AnswerNotFound: no guess is trained on. Costs two renderings per answer, four a template.
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

PLAIN = frozenset({"role", "content"})

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
    """`header` is what stands between a prompt and an answer where the template has no generation prompt.

    `tails` are ends of the generation prompt that answers may lack: one that opens thoughts (`<think>`) is not in
    turns that show none. `opener` is the generation prompt alone. `closing` ends the turn of an answer that something follows, `final` that of the last one;
    `after` is all that follows a last answer. Some templates end only the conversation, so `closing` may be empty.
    """

    render: Render
    header: str
    opener: str
    tails: tuple[str, ...]
    closing: str
    final: str
    after: str

    @classmethod
    def probe(cls, render: Render, token_ends: TokenEnds) -> AnswerFinder:
        """Learn how answers open and close. Raises AnswerNotFound, and what `render` raises."""
        asked: list[dict[str, Any]] = [{"role": "user", "content": ASK}]
        answered = [*asked, {"role": "assistant", "content": ANSWER}]
        alone, question = render(answered, False), render(asked, False)
        followed = render([*answered, {"role": "user", "content": NEXT}], False)
        prompt = render(asked, True)
        if ANSWER not in alone or ANSWER not in followed:
            raise AnswerNotFound("the template does not show an assistant's text")
        if ASK not in prompt or ASK not in question:
            raise AnswerNotFound("the template does not show a user's text")
        opening = followed[: followed.index(ANSWER)]
        header = opening.removeprefix(prompt) if prompt == question and opening.startswith(prompt) else ""
        tails = {"": None, **dict.fromkeys(_tail(prompt, text, token_ends) for text in (followed, alone))}
        after, after_followed = (text[text.index(ANSWER) + len(ANSWER) :] for text in (alone, followed))
        closing = final = _common(after, after_followed, token_ends).rstrip()
        if not closing:
            final, of_user = after.rstrip(), question[question.index(ASK) + len(ASK) :].rstrip()
            closing = of_user if after_followed.startswith(of_user) else ""
        header, opener = (header if header.strip() else ""), prompt[_agreed(prompt, question) :]
        return cls(render, header, opener, tuple(tails), closing.strip(), final.strip(), after)

    def spans(self, messages: Sequence[dict[str, Any]], text: str) -> list[Span]:
        """The span of every assistant message of `messages`, whose rendering is `text`."""
        answers = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        starts = [self._start(messages[:i], text) for i in answers]
        limits = [*starts[1:], len(text)]
        spans = [self._span(messages, *found, text) for found in zip(answers, starts, limits, strict=True)]
        if any(span.end > limit for span, limit in zip(spans, limits, strict=True)):
            raise AnswerNotFound("an answer reaches into the next one")
        return spans

    def _start(self, before: Sequence[dict[str, Any]], text: str) -> int:
        if not before:
            raise AnswerNotFound("the conversation begins with an answer")
        prompt = self.render(before, True) + self.header
        for tail in self.tails:
            if prompt.endswith(tail) and text.startswith(prompt.removesuffix(tail)):
                start = len(prompt) - len(tail)
                bare = not prompt.endswith(self.opener) and text.startswith(self.opener, start)
                return start + (len(self.opener) if bare else 0)
        return self._start_in_past(before, text)

    def _start_in_past(self, before: Sequence[dict[str, Any]], text: str) -> int:
        """Where the messages before show otherwise once another question follows: the opener that ends what they share.

        It must reach over the first character that differs, so that nothing but the opener lies between.
        """
        past = self.render([*before, {"role": "user", "content": NEXT}], False)
        shared = _agreed(past, text)
        for opener in (self.opener.removesuffix(tail) for tail in self.tails if self.opener.endswith(tail)):
            at = text.rfind(opener, 0, shared + len(opener))
            if opener.strip() and 0 <= at <= shared < at + len(opener):
                return at + len(opener)
        raise AnswerNotFound(f"the prompt before message {len(before)} is no prefix of the whole conversation")

    def _span(self, messages: Sequence[dict[str, Any]], at: int, start: int, limit: int, text: str) -> Span:
        message, following = messages[at], messages[at + 1 :]
        mark = self.closing if following else self.final
        span = self._settled(self.render(messages[: at + 1], False) if following else text, text, start, mark)
        if span is None or (span.content_end == span.end and mark and message.keys() <= PLAIN):
            span = _searched(message, following, text[:limit], start, mark)
        hidden = _hidden(message, text[start : span.end])
        if hidden is not None:
            raise AnswerNotFound(f"the template does not show {hidden}")
        return span

    def _settled(self, until: str, text: str, start: int, mark: str) -> Span | None:
        """The answer that ends `until`, the rendering of the messages up to it, if `text` begins with that."""
        body = until[: len(until) - len(self.after)] if until.endswith(self.after) else None
        if body is not None and len(body) >= start and text.startswith(body):
            content_end = max(start, len(body.rstrip()))
            closed = re.compile(rf"\s*{re.escape(mark)}").match(text, content_end)
            if closed:
                return Span(start, content_end, closed.end() if mark else content_end)
        shown = until.rstrip()
        return Span(start, len(shown), len(shown)) if len(shown) > start and text.startswith(shown) else None


def _searched(message: dict[str, Any], following: Sequence[dict[str, Any]], text: str, start: int, mark: str) -> Span:
    """An answer that shows otherwise once something follows it: its text, then `mark`, before the next message."""
    content = _shown(message["content"], text[start:])
    at = text.find(content, start)
    if at < 0 or (mark and mark in text[start:at]):
        raise AnswerNotFound("the template changes an answer's text")
    content_end = at + len(content)
    closed = re.compile(rf"\s*{re.escape(mark)}").match(text, content_end)
    if closed:
        span = Span(start, content_end, closed.end() if mark else content_end)
    else:
        end = text.find(mark, content_end)
        if end < 0 or message.keys() <= PLAIN:
            raise AnswerNotFound("an answer is not followed by the template's end of turn")
        span = Span(start, end, end + len(mark))
    next_text = str(following[0]["content"]).strip() if following else ""
    if next_text and next_text in text[start:at] + text[content_end : span.end]:
        raise AnswerNotFound("what follows an answer cannot be told from it")
    return span


def _tail(prompt: str, text: str, token_ends: TokenEnds) -> str:
    """The end of `prompt` that the answer in `text` does not begin with."""
    opening = text[: text.index(ANSWER)]
    if opening.startswith(prompt):
        return ""
    shared = _common(prompt, opening, token_ends)
    if not shared[prompt.index(ASK) + len(ASK) :].strip():
        raise AnswerNotFound("the generation prompt is not how the template opens an answer")
    return prompt[len(shared) :]


def _common(one: str, other: str, token_ends: TokenEnds) -> str:
    """The longest common beginning that ends with a whole token of both: `<|end|>` and `<|eos|>` share no `<|`."""
    agreed = _agreed(one, other)
    shared = token_ends(one) & token_ends(other)
    return one[: max((end for end in shared if end <= agreed), default=0)]


def _agreed(one: str, other: str) -> int:
    """How many characters two texts have in common before they differ."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _shown(content: str, region: str) -> str:
    """The part of an answer that a template shows: trimmed, in earlier turns of some without its thoughts."""
    whole = content.strip()
    if whole not in region and END_OF_THOUGHT in whole:
        return whole.rpartition(END_OF_THOUGHT)[2].strip()
    return whole


def _hidden(message: dict[str, Any], region: str) -> str | None:
    """What of an answer its place in the text does not show, in words; None where it shows all."""
    if _shown(message["content"], region) not in region:
        return "an answer's text"
    names = [str(call["function"]["name"]) for call in message.get("tool_calls") or ()]
    return next((f"the call of {name}" for name in names if name not in region), None)


def marked_spans(messages: Sequence[dict[str, Any]], text: str, marks: Sequence[tuple[int, int]]) -> list[Span]:
    """A span for every assistant message from what the template itself marks, one run of marks to an answer.

    Raises AnswerNotFound where the runs are not as many as the answers, or one does not show its answer's text.
    """
    runs: list[tuple[int, int]] = []
    for start, end in marks:
        if runs and runs[-1][1] == start:
            runs[-1] = (runs[-1][0], end)
        elif end > start:
            runs.append((start, end))
    answers = [message for message in messages if message["role"] == "assistant"]
    if len(runs) != len(answers):
        raise AnswerNotFound(f"the template marks {len(runs)} answers, the conversation has {len(answers)}")
    for message, (start, end) in zip(answers, runs, strict=True):
        hidden = _hidden(message, text[start:end])
        if hidden is not None:
            raise AnswerNotFound(f"what the template marks as generated does not show {hidden}")
    return [_marked(message, text, start, end) for message, (start, end) in zip(answers, runs, strict=True)]


def _marked(message: dict[str, Any], text: str, start: int, end: int) -> Span:
    content = _shown(message["content"], text[start:end])
    if not content or message.get("tool_calls"):
        return Span(start, start + len(text[start:end].rstrip()), end)
    return Span(start, text.rindex(content, start, end) + len(content), end)
