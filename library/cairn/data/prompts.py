"""A conversation that awaits the assistant, as tokens: what is generated from, in training and in comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cairn.data.rendering import Renderer
from cairn.records import Message


def prompt_tokens(tokenizer: Any, messages: Sequence[Message], tools: Sequence[Any] = ()) -> tuple[int, ...]:
    """The conversation and the beginning of the assistant's turn, as the chat template writes them; TemplateRefused
    where it does not take them."""
    renderer = Renderer.of(tokenizer, tools=bool(tools))
    text = renderer.text([message.for_template() for message in messages], tools=list(tools) or None, prompt=True)
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
