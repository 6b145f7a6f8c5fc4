"""Conversations to text by the model's own chat template, one call for the text and for what the template marks.

The same steps as `tokenizer.apply_chat_template`, taken apart: transformers tells where the template's
`{% generation %}` blocks lie only as a mask of tokens, here it is characters. Cost: one rendering.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

GENERATION_MARK = re.compile(r"\{%-?\s*generation\s*-?%\}")

Messages = Sequence[dict[str, Any]]
Mark = tuple[int, int]
"""Characters [start, end) of a `{% generation %}` block."""


class TemplateRefused(Exception):
    """The chat template raised: the roles, their order or a field are not what it is written for."""


@dataclass(frozen=True)
class Renderer:
    """One chat template with the special tokens that it may name."""

    template: str
    names: dict[str, Any]

    @classmethod
    def of(cls, tokenizer: Any, *, tools: bool) -> Renderer:
        """The template that the tokenizer uses for conversations with or without tools."""
        template = str(tokenizer.get_chat_template(tools=[{}] if tools else None))
        return cls(template, dict(tokenizer.special_tokens_map))

    @cached_property
    def marks_answers(self) -> bool:
        """Whether the template says itself what an assistant generates."""
        return GENERATION_MARK.search(self.template) is not None

    def text(self, messages: Messages, *, tools: Any = None, prompt: bool = False) -> str:
        """The conversation, with the generation prompt where `prompt`. Raises TemplateRefused."""
        return self._render([messages], tools=tools, add_generation_prompt=prompt)[0][0]

    def marked(self, conversations: Sequence[Messages], *, tools: Any = None) -> list[tuple[str, list[Mark]]]:
        """Each conversation and what the template marks in it, in order. Raises TemplateRefused where it refuses one.

        Many at once take three quarters of the time.
        """
        return self._render(conversations, tools=tools, return_assistant_tokens_mask=self.marks_answers)

    def _render(self, conversations: Sequence[Messages], **options: Any) -> list[tuple[str, list[Mark]]]:
        from transformers.utils.chat_template_utils import render_jinja_template

        said = [[_without_nulls(message) for message in messages] for messages in conversations]
        render: Any = partial(render_jinja_template, chat_template=self.template, **self.names)
        try:
            texts, marks = render(conversations=said, **options)
        except Exception as error:  # a template is a program of the model's author and raises what it likes
            raise TemplateRefused(str(error) or type(error).__name__) from error
        found = marks or [()] * len(texts)
        return [(str(t), [(int(a), int(b)) for a, b in of_text]) for t, of_text in zip(texts, found, strict=True)]


def _without_nulls(message: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if value is not None}
