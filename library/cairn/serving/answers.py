"""Events as OpenAI's JSON: whole answers and chunks of a stream, for both endpoints."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cairn.generation.request import Event, TokenLogprob


@dataclass
class Head:
    """What all parts of one answer share. `chat` chooses the endpoint's shapes."""

    model: str
    chat: bool
    id: str = ""
    created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        self.id = f"{'chatcmpl' if self.chat else 'cmpl'}-{uuid.uuid4().hex}"

    def envelope(self, choices: list[dict[str, Any]], *, chunk: bool) -> dict[str, Any]:
        """The object around choices."""
        kind = "text_completion"
        if self.chat:
            kind = "chat.completion.chunk" if chunk else "chat.completion"
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices}


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """Token counts."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def whole_choice(index: int, events: Sequence[Event], *, chat: bool) -> dict[str, Any]:
    """All events of one choice as one object."""
    text = "".join(event.text for event in events)
    logprobs = logprobs_of(events, chat=chat, offset=0)
    choice = {"index": index, "finish_reason": events[-1].finish, "logprobs": logprobs}
    if chat:
        return {**choice, "message": {"role": "assistant", "content": text, "refusal": None}}
    return {**choice, "text": text}


def opening_chunk(index: int) -> dict[str, Any]:
    """The first choice object of a chat stream."""
    return {"index": index, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}


def chunk_choice(index: int, events: Sequence[Event], *, chat: bool, offset: int) -> dict[str, Any]:
    """New events of one choice; `offset` is the length of the text already sent."""
    text = "".join(event.text for event in events)
    logprobs = logprobs_of(events, chat=chat, offset=offset)
    choice = {"index": index, "logprobs": logprobs, "finish_reason": events[-1].finish}
    return {**choice, "delta": {"content": text} if text or logprobs else {}} if chat else {**choice, "text": text}


def logprobs_of(events: Sequence[Event], *, chat: bool, offset: int) -> dict[str, Any] | None:
    """The log-probabilities of the events' tokens, or None when none were asked for."""
    entries: list[TokenLogprob] = [event.logprob for event in events if event.logprob is not None]
    if not entries:
        return None
    if chat:
        return {"content": [{**_chat_entry(e), "top_logprobs": [_chat_entry(t) for t in e.top]} for e in entries]}
    offsets = []
    for event in events:
        if event.logprob is not None:
            offsets.append(offset)
        offset += len(event.text)
    return {
        "tokens": [entry.text for entry in entries],
        "token_logprobs": [entry.logprob for entry in entries],
        "top_logprobs": [{top.text: top.logprob for top in entry.top} for entry in entries],
        "text_offset": offsets,
    }


def _chat_entry(entry: TokenLogprob) -> dict[str, Any]:
    return {"token": entry.text, "logprob": entry.logprob, "bytes": list(entry.text.encode())}
