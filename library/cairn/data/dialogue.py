"""A conversation read with one tokenizer's template: its text, and the span of every answer in it.

Where the template marks what is generated, its marks are used; where not, the answers are found (`cairn.data.answers`),
the short way where a conversation is laid out like one before (`cairn.data.outlines`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cairn.data.answers import AnswerFinder, Span, marked_spans
from cairn.data.outlines import Outlines
from cairn.data.rendering import Mark, Messages, Renderer, TemplateRefused

Marked = tuple[str, list[Mark]]
"""A conversation's text, and what its template marks in it."""


@dataclass(frozen=True)
class Found:
    """A template without marks: how its answers are found."""

    finder: AnswerFinder
    outlines: Outlines


class Dialogue:
    """What is learned of a template is kept, for conversations with tools apart: they may have a template of their own."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._renderers: dict[bool, Renderer] = {}
        self._found: dict[str, Found] = {}

    def render(self, messages: Messages, tools: Any = None) -> Marked:
        """The text, and what the template marks as generated. Raises TemplateRefused."""
        return self._renderer(tools).marked([messages], tools=tools)[0]

    def render_all(self, conversations: Sequence[Messages]) -> Sequence[Marked | None]:
        """As `render` says of each conversation, none with tools; no word on any where the template refuses one."""
        try:
            return self._renderer(None).marked(conversations)
        except TemplateRefused:
            return [None] * len(conversations)

    def spans(self, messages: Messages, text: str, marks: Sequence[Mark], tools: Any = None) -> list[Span]:
        """A span for each assistant message of what `render` gave. Raises AnswerNotFound and TemplateRefused."""
        renderer = self._renderer(tools)
        if renderer.marks_answers:
            return marked_spans(messages, text, marks)
        if renderer.template not in self._found:
            self._found[renderer.template] = self._probe(renderer)
        found = self._found[renderer.template]
        if tools is None:
            return found.outlines.spans(messages, text)
        finder = replace(found.finder, render=lambda said, prompt: renderer.text(said, tools=tools, prompt=prompt))
        return finder.spans(messages, text)

    def _renderer(self, tools: Any) -> Renderer:
        kind = tools is not None
        if kind not in self._renderers:
            self._renderers[kind] = Renderer.of(self._tokenizer, tools=kind)
        return self._renderers[kind]

    def _probe(self, renderer: Renderer) -> Found:
        finder = AnswerFinder.probe(lambda said, prompt: renderer.text(said, prompt=prompt), self._token_ends)
        return Found(finder, Outlines(renderer.text, finder.spans, finder.tails))

    def _token_ends(self, text: str) -> set[int]:
        encoded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return {end for _, end in encoded["offset_mapping"]}
