"""Answers found without rendering prefixes, where a conversation is laid out as another of the same roles was.

Most conversations of a dataset differ in their texts alone. The first of each sequence of roles is rendered once
more with probe texts; what stands between those texts, and where the finder sees the answers among them, is the outline.
A later conversation whose rendering is exactly that outline filled with its own texts gets its spans by counting
characters; any other (thoughts stripped, a date in the prompt, tools) goes the long way. The spans are the same.
Cost: one rendering of probes a sequence of roles, then one comparison of texts a conversation.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cairn.data.answers import PLAIN, AnswerNotFound, Span
from cairn.data.rendering import TemplateRefused

Messages = Sequence[dict[str, Any]]
Find = Callable[[Messages, str], list[Span]]

MAX_OUTLINES = 512


@dataclass(frozen=True)
class Outline:
    """`literals` are the texts before, between and after the contents.

    `answers` says for each answer which content it is, how many characters before that content it starts, and how
    many after it it ends.
    """

    literals: tuple[str, ...]
    answers: tuple[tuple[int, int, int], ...]

    def spans(self, contents: Sequence[str], text: str) -> list[Span] | None:
        """The answers' spans if `text` is this outline filled with `contents`, else None."""
        parts = [self.literals[0]]
        for content, literal in zip(contents, self.literals[1:], strict=True):
            parts += (content, literal)
        if text != "".join(parts):
            return None
        ends, at = [], 0
        for literal, content in zip(self.literals, contents, strict=False):
            at += len(literal) + len(content)
            ends.append(at)
        spans = []
        for i, before, after in self.answers:
            start = ends[i] - len(contents[i])
            content_end = start + len(contents[i].rstrip())
            spans.append(Span(start - before, content_end, ends[i] + after if after else content_end))
        return spans


class Outlines:
    """The outlines of one template. `render` and `find` are the long way; `tails` as in `AnswerFinder`."""

    def __init__(self, render: Callable[[Messages], str], find: Find, tails: Sequence[str]) -> None:
        self._render, self._find = render, find
        self._tails = tuple(tail for tail in tails if tail)
        self._known: OrderedDict[tuple[str, ...], Outline | None] = OrderedDict()

    def spans(self, messages: Messages, text: str) -> list[Span]:
        """What `find` returns, by the short way where it applies. Raises AnswerNotFound."""
        outline = self._outline_of(messages)
        if outline is not None:
            contents = [message["content"] for message in messages]
            spans = outline.spans(contents, text) or outline.spans([content.strip() for content in contents], text)
            if spans is not None and not any(text.startswith(self._tails, span.start) for span in spans):
                return spans
        return self._find(messages, text)

    def _outline_of(self, messages: Messages) -> Outline | None:
        if not all(message.keys() <= PLAIN and message["content"].strip() for message in messages):
            return None
        roles = tuple(str(message["role"]) for message in messages)
        if roles not in self._known:
            self._known[roles] = self._learn(roles)
            if len(self._known) > MAX_OUTLINES:
                self._known.popitem(last=False)
        return self._known[roles]

    def _learn(self, roles: Sequence[str]) -> Outline | None:
        probes = [f"cairn-{i}-probe" for i in range(len(roles))]
        messages = [{"role": role, "content": probe} for role, probe in zip(roles, probes, strict=True)]
        try:
            text = self._render(messages)
            spans = self._find(messages, text)
        except (AnswerNotFound, TemplateRefused):
            return None
        starts = [text.find(probe) for probe in probes]
        if any(text.count(probe) != 1 for probe in probes) or starts != sorted(starts):
            return None
        ends = [start + len(probe) for start, probe in zip(starts, probes, strict=True)]
        literals = [text[end:start] for end, start in zip([0, *ends], [*starts, len(text)], strict=True)]
        answers = [i for i, role in enumerate(roles) if role == "assistant"]
        settled = [(i, starts[i] - span.start, span.end - ends[i]) for i, span in zip(answers, spans, strict=True)]
        fits = all(before >= 0 and after >= 0 for _, before, after in settled)
        return Outline(tuple(literals), tuple(settled)) if fits else None
