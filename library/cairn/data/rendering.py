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
        return self._render(messages, tools=tools, add_generation_prompt=prompt)[0]

    def marked(self, messages: Messages, *, tools: Any = None) -> tuple[str, list[Mark]]:
        """The conversation and what the template marks in it, in order. Raises TemplateRefused."""
        return self._render(messages, tools=tools, return_assistant_tokens_mask=True)

    def _render(self, messages: Messages, **options: Any) -> tuple[str, list[Mark]]:
        from transformers.utils.chat_template_utils import render_jinja_template

        said = [{key: value for key, value in message.items() if value is not None} for message in messages]
        render: Any = partial(render_jinja_template, chat_template=self.template, **self.names)
        try:
            texts, marks = render(conversations=[said], **options)
        except Exception as error:  # a template is a program of the model's author and raises what it likes
            raise TemplateRefused(str(error) or type(error).__name__) from error
        return str(texts[0]), [(int(start), int(end)) for start, end in marks[0]] if marks else []


def prompt_tokens(tokenizer: Any, messages: Messages, *, tools: Sequence[Any] = ()) -> tuple[int, ...]:
    """The conversation so far and the beginning of the assistant's turn, as the chat template writes them."""
    text = Renderer.of(tokenizer, tools=bool(tools)).text(messages, tools=list(tools) or None, prompt=True)
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
