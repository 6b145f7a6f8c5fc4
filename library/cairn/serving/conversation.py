"""Streams of events as one JSON answer, or as the server-sent events of OpenAI's streaming protocol."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from cairn.generation.request import Event
from cairn.serving.answers import Head, chunk_choice, opening_chunk, usage, whole_choice
from cairn.serving.refusal import RefusedError
from cairn.serving.streams import Streams

DONE = "data: [DONE]\n\n"


async def collect(streams: Streams, *, copies: int, chat: bool) -> dict[str, Any]:
    """The whole answer. `copies` is n: a prompt shared by n choices counts once."""
    events: list[list[Event]] = [[] for _ in streams.openings]
    async for choice, new in streams:
        events[choice].extend(new)
    choices = [whole_choice(index, found, chat=chat) for index, found in enumerate(events)]
    answer = Head(streams.label, chat=chat).envelope(choices, chunk=False)
    return {**answer, "usage": usage(_prompt_tokens(streams, copies), sum(_tokens(found) for found in events))}


async def sse(streams: Streams, *, copies: int, chat: bool, include_usage: bool) -> AsyncIterator[str]:
    """Chunks as they come, the usage last when it is wanted, then [DONE]. A failure on the way is a last chunk."""
    head = Head(streams.label, chat=chat)
    absent = {"usage": None} if include_usage else {}
    offsets, completion_tokens = [0] * len(streams.openings), 0
    try:
        if chat:
            for index in range(len(offsets)):
                yield _line({**head.envelope([opening_chunk(index)], chunk=True), **absent})
        async for choice, events in streams:
            completion_tokens += _tokens(events)
            part = chunk_choice(choice, events, chat=chat, offset=offsets[choice])
            offsets[choice] += sum(len(event.text) for event in events)
            if offsets[choice] or events[-1].finish or part["logprobs"]:
                yield _line({**head.envelope([part], chunk=True), **absent})
    except RefusedError as error:
        yield _line(error.refusal.body())
        return
    if include_usage:
        counts = usage(_prompt_tokens(streams, copies), completion_tokens)
        yield _line({**head.envelope([], chunk=True), "usage": counts})
    yield DONE


def _line(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


def _tokens(events: list[Event]) -> int:
    return sum(event.token is not None for event in events)


def _prompt_tokens(streams: Streams, copies: int) -> int:
    return sum(opening.prompt_tokens for opening in streams.openings[::copies])
