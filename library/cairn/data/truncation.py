"""What is left out of a conversation that is longer than a row, and in which order.

`keep_end` and `keep_start` say which part of the prompt stays. Whole exchanges (a user's turn and what answers it) go
first: the oldest under `keep_end`, the newest under `keep_start`, as long as an answer to train is left. An exchange
that does not fit alone keeps the end, or the start, of its user's text. What is left is rendered by the template
again, so a header is never cut, and an answer is whole or absent: one that does not fit beside its headers and the
system message drops the record. Cost: a rendering and a tokenisation for each thing tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from cairn.data.drops import CutReason
from cairn.data.rows import Sample
from cairn.records import Conversation, Message

Truncation = Literal["drop", "keep_start", "keep_end"]

Encode = Callable[[Conversation], Sample | None]
"""A conversation → its sample of any length, None where there is nothing to train in it."""

MAX_TRIES = 8
"""Texts tried for one exchange; each comes nearer by the positions that were too many, so the second mostly fits."""

SLACK_TRIES = 3
"""After so many tries more is cut than counted: a template or a merge of tokens gives back some of it."""


def shorten(
    conversation: Conversation, fits: int, policy: Truncation, *, encode: Encode, tokenizer: Any
) -> tuple[Sample, tuple[CutReason, ...]] | None:
    """The sample of at most `fits` positions and what was cut for it; None where the policy cannot make one."""
    if policy == "drop":
        return None
    exchanges = _exchanges(conversation.messages)
    if not exchanges:
        return None
    messages = conversation.messages
    system = messages[: exchanges[0][0]]
    for start, end in _candidates(exchanges, policy):
        sample = encode(_with(conversation, (*system, *messages[start:end])))
        if sample is not None and len(sample) <= fits:
            return sample, _gone(exchanges, start, end)
    trained = [(start, end) for start, end in exchanges if any(map(_is_trained, messages[start:end]))]
    if not trained:
        return None
    start, end = trained[-1 if policy == "keep_end" else 0]
    alone = _with(conversation, (*system, *messages[start:end]))
    sample = _cut_text(alone, len(system), fits, policy, encode=encode, tokenizer=tokenizer)
    cut = CutReason.PROMPT_START if policy == "keep_end" else CutReason.PROMPT_END
    return (sample, (*_gone(exchanges, start, end), cut)) if sample is not None else None


def _gone(exchanges: Sequence[tuple[int, int]], start: int, end: int) -> tuple[CutReason, ...]:
    oldest = (CutReason.OLDEST_TURNS,) if start > exchanges[0][0] else ()
    return (*oldest, CutReason.NEWEST_TURNS) if end < exchanges[-1][1] else oldest


def _exchanges(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """[from, to) of each user's turn with all that follows it up to the next one."""
    starts = [i for i, message in enumerate(messages) if message.role == "user"]
    starts = [i for i in starts if i == 0 or messages[i - 1].role != "user"]
    return list(zip(starts, [*starts[1:], len(messages)], strict=True))


def _candidates(exchanges: Sequence[tuple[int, int]], policy: Truncation) -> Iterator[tuple[int, int]]:
    """Fewer and fewer whole exchanges, from all but one down to one."""
    first, last = exchanges[0][0], exchanges[-1][1]
    if policy == "keep_end":
        yield from ((start, last) for start, _ in exchanges[1:])
    else:
        yield from ((first, end) for _, end in reversed(exchanges[:-1]))


def _cut_text(
    conversation: Conversation, at: int, fits: int, policy: Truncation, *, encode: Encode, tokenizer: Any
) -> Sample | None:
    """The conversation with as much of the text of message `at` as fits, at least one token of it."""
    whole = conversation.messages[at]
    offsets = tokenizer(whole.content, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    ends = [end for _, end in offsets["offset_mapping"]]
    starts = [start for start, _ in offsets["offset_mapping"]]
    sample = encode(conversation)
    kept = len(ends)
    for tries in range(MAX_TRIES):
        if sample is None:
            return None
        if len(sample) <= fits:
            return sample
        kept -= len(sample) - fits + max(0, tries - SLACK_TRIES)
        if kept <= 0:
            return None
        content = whole.content[: ends[kept - 1]] if policy == "keep_start" else whole.content[starts[-kept] :]
        shorter = msgspec.structs.replace(whole, content=content)
        messages = (*conversation.messages[:at], shorter, *conversation.messages[at + 1 :])
        sample = encode(_with(conversation, messages))
    return sample if sample is not None and len(sample) <= fits else None


def _is_trained(message: Message) -> bool:
    return message.role == "assistant" and message.weight > 0


def _with(conversation: Conversation, messages: tuple[Message, ...]) -> Conversation:
    return msgspec.structs.replace(conversation, messages=messages)
