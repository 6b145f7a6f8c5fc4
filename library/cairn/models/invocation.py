"""Where an adapter acts that waits for an invocation: from the start of the last one in each sequence on.

A sequence is a segment of a row: it begins where the position is not the one before plus one. A sequence without the
invocation is the base's. Cost: one comparison of the tokens with each token of the invocation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

NEVER = 1 << 62
"""A position that no sequence reaches."""


def last_start(tokens: Sequence[int], invocation: Sequence[int]) -> int:
    """Where the last `invocation` in `tokens` begins; NEVER where there is none."""
    wanted, length = list(invocation), len(invocation)
    for start in range(len(tokens) - length, -1, -1):
        if list(tokens[start : start + length]) == wanted:
            return start
    return NEVER


def invoked(tokens: torch.Tensor, positions: torch.Tensor | None, invocation: Sequence[int]) -> torch.Tensor:
    """Bool [rows, length]: whether a position lies behind the start of the last invocation of its sequence.

    `tokens`, `positions`: int64 [rows, length]; without positions a row is one sequence.
    """
    rows, length = tokens.shape
    columns = torch.arange(length, device=tokens.device).expand(rows, length)
    begins = columns == 0
    if positions is not None:
        begins = begins | (positions.expand(rows, length) != positions.expand(rows, length).roll(1, 1) + 1)
    sequences = (begins.flatten().cumsum(0) - 1).view(rows, length)
    hits = torch.zeros_like(begins)
    size = len(invocation)
    if size <= length:
        inside = length - size + 1
        found = sequences[:, :inside] == sequences[:, size - 1 :]
        for offset, token in enumerate(invocation):
            found = found & (tokens[:, offset : offset + inside] == token)
        hits[:, :inside] = found
    starts = torch.full((rows * length,), NEVER, device=tokens.device)
    last = torch.full_like(starts, -1)
    last.scatter_reduce_(0, sequences.flatten(), torch.where(hits, columns, -1).flatten(), "amax")
    starts = torch.where(last >= 0, last, starts)
    return columns >= starts[sequences]


class Invocation:
    """The tokens that invoke an adapter, and where the forward pass that runs is behind them: bool [rows, length]."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = tuple(tokens)
        self.mask: torch.Tensor | None = None

    def given(self, module: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """The forward pre-hook, with keywords, of a model that is called with `input_ids` and maybe `position_ids`."""
        tokens = keywords.get("input_ids", arguments[0] if arguments else None)
        if tokens is None:
            raise TypeError("an adapter that waits for an invocation needs input_ids")
        self.mask = invoked(tokens, keywords.get("position_ids"), self.tokens)

    def of(self, update: torch.Tensor) -> torch.Tensor:
        """`update` [rows, length, out], or with rows as one, where it acts; zero elsewhere."""
        assert self.mask is not None, "the model's hook has run"
        return where_active(update, self.mask)


def where_active(update: torch.Tensor, active: torch.Tensor) -> torch.Tensor:
    """`update` [..., out], one for each of `active` [rows, columns], and zero where that is false. RuntimeError for a layer
    that regroups tokens."""
    if update.shape[:-1].numel() != active.numel():
        raise RuntimeError(
            f"a layer gets {tuple(update.shape[:-1])} for {tuple(active.shape)} tokens: it regroups them"
        )
    return update * active.view(*update.shape[:-1], 1).to(update.dtype)


@contextmanager
def looking(model: torch.nn.Module, invocation: Invocation | None) -> Iterator[None]:
    """Each pass of `model` inside looks for the invocation, where there is one."""
    handle = None if invocation is None else model.register_forward_pre_hook(invocation.given, with_kwargs=True)
    try:
        yield
    finally:
        if handle is not None:
            handle.remove()


def invocation_of(model: Any) -> Invocation | None:
    """That of the adapter of `model` or of the model in its engine."""
    inner = getattr(model, "module", None)
    found = getattr(inner if isinstance(inner, torch.nn.Module) else model, "invocation", None)
    return found if isinstance(found, Invocation) else None
