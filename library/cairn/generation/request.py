"""What goes into the Generator and what comes out: a request, its events step by step, its completion.

Plain values without tensors, so that they cross threads and processes as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cairn.errors import UserError

Finish = Literal["stop", "length", "cancelled", "error"]
MOST_ALTERNATIVES = 20


@dataclass(frozen=True)
class Request:
    """One prompt and how its answer is sampled.

    `prompt` are token ids. `adapter` is the id of a loaded adapter, None for the base. `temperature` 0 is greedy.
    `top_k` 0 and `top_p` 1 leave the distribution whole. `max_tokens` None goes on to the end of the window; either
    way an answer ends at the window with finish "length". `logprobs` n asks for the natural logarithm of the
    model's own probability (before temperature) of each chosen token and of the n likeliest.
    """

    prompt: tuple[int, ...]
    adapter: str | None = None
    max_tokens: int | None = 128
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    ignore_eos: bool = False

    def check(self, *, vocabulary: int, max_length: int) -> None:
        """UserError with the first thing wrong; `max_length` is the window in tokens, prompt and answer."""
        if not self.prompt:
            raise UserError("the prompt has no tokens", where="prompt", next_step="give at least one token")
        if len(self.prompt) >= max_length:
            raise UserError(
                f"the prompt has {len(self.prompt)} tokens and the window is {max_length}, with no room for an answer",
                where="prompt",
                next_step=f"send at most {max_length - 1} tokens",
            )
        if not all(0 <= token < vocabulary for token in self.prompt):
            raise UserError(f"token ids go from 0 to {vocabulary - 1}", where="prompt", next_step="check the tokenizer")
        for name, good, rule in self._ranges():
            if not good:
                raise UserError(f"{name} = {getattr(self, name)!r} is out of range", where=name, next_step=rule)

    def _ranges(self) -> tuple[tuple[str, bool, str], ...]:
        return (
            ("max_tokens", self.max_tokens is None or self.max_tokens >= 1, "at least 1"),
            ("temperature", 0 <= self.temperature <= 100, "from 0 to 100"),
            ("top_p", 0 < self.top_p <= 1, "above 0, at most 1"),
            ("top_k", self.top_k >= 0, "0 for all, or a number of tokens"),
            ("seed", self.seed is None or -(2**63) <= self.seed < 2**63, "a 64-bit integer"),
            ("stop", all(self.stop), "no empty stop string"),
            ("logprobs", self.logprobs is None or 0 <= self.logprobs <= MOST_ALTERNATIVES, f"0 to {MOST_ALTERNATIVES}"),
        )


@dataclass(frozen=True)
class TokenLogprob:
    """A token, its text, the natural logarithm of its probability, and the likeliest alternatives."""

    token: int
    text: str
    logprob: float
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Event:
    """One step of one request: the token it sampled and the text that is certain by now.

    Text may lag behind tokens (half a character, the beginning of a stop string) and never runs ahead. The last
    event of a request has a `finish`; with "error" also the `error`.
    """

    request_id: int
    token: int | None = None
    text: str = ""
    logprob: TokenLogprob | None = None
    finish: Finish | None = None
    error: str | None = None


@dataclass(frozen=True)
class Completion:
    """A whole answer. `tokens` include the end-of-text token that stopped it; `text` leaves out what stopped it."""

    tokens: tuple[int, ...]
    text: str
    finish: Finish
    logprobs: tuple[TokenLogprob, ...] = ()
    error: str | None = None
