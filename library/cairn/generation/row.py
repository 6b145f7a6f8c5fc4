"""One running request: how far its prompt is read, what it sampled, and when it ends."""

from __future__ import annotations

from typing import Any

import torch

from cairn.generation.adapters import Resident
from cairn.generation.request import Event, Finish, Request, TokenLogprob
from cairn.generation.sampling import logprob_of, random_source
from cairn.generation.text import StopMatcher, TextStream
from cairn.models.invocation import last_start


class Row:
    """The state of a request between steps. `cached` tokens lie in the pool, the adapter's virtual ones among them. From the
    position `acts_from` on what waits for the `invocation` acts; what is sampled does not change that."""

    def __init__(
        self,
        number: int,
        request: Request,
        resident: Resident,
        *,
        tokenizer: Any,
        max_length: int,
        invocation: tuple[int, ...] = (),
    ) -> None:
        self.number, self.request, self.resident = number, request, resident
        self.source = random_source(request)
        self.cached = resident.ahead
        self.invocation = invocation
        self.acts_from = last_start(request.prompt, invocation) if invocation else 0
        self.answer: list[int] = []
        room = max_length - resident.ahead - len(request.prompt)
        self.limit = room if request.max_tokens is None else min(request.max_tokens, room)
        self._tokenizer = tokenizer
        self._stream = TextStream(tokenizer)
        self._stop = StopMatcher(request.stop)

    def next_tokens(self, most: int) -> tuple[int, ...] | list[int]:
        """What the model reads next: up to `most` of the prompt, then the token sampled last."""
        if self.unread:
            read = self.cached - self.resident.ahead
            return self.request.prompt[read : read + most]
        return self.answer[-1:]

    @property
    def unread(self) -> int:
        """Prompt tokens that the model has not read."""
        return max(0, self.resident.ahead + len(self.request.prompt) - self.cached)

    def accept(self, token: int, logits: torch.Tensor, *, ends: frozenset[int]) -> Event:
        """Take the sampled token (with its logits [vocabulary]); the event says what that means for the outside."""
        self.answer.append(token)
        logprob = self._logprob(token, logits)
        if token in ends and not self.request.ignore_eos:
            return Event(self.number, token, self._stop.flush(), logprob, "stop")
        text, stopped = self._stop.push(self._stream.push(token))
        finish: Finish | None = "stop" if stopped else None
        if finish is None and len(self.answer) >= self.limit:
            finish, text = "length", text + self._stop.flush()
        return Event(self.number, token, text, logprob, finish)

    def _logprob(self, token: int, logits: torch.Tensor) -> TokenLogprob | None:
        if self.request.logprobs is None:
            return None
        return logprob_of(logits, token, alternatives=self.request.logprobs, tokenizer=self._tokenizer)
