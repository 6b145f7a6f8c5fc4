"""Scoring: the nats that a model needs for given tokens, many windows of any length at a time.

Windows are packed side by side into rows as long as the longest of them, isolated from each other, so nothing is spent
on padding; the head runs only at the scored positions. A CPU takes few tokens at once, for its caches; an accelerator
many. How windows share rows changes a result by rounding only.
Cost: one forward pass over the inputs, and fp32 logits [targets of a batch, vocabulary] in memory.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from cairn.errors import ModelError
from cairn.losses.cross_entropy import token_nll
from cairn.models.attention import forward_inputs, is_recurrent
from cairn.models.forward import logits_at
from cairn.models.unwrap import base_of, text_config

CPU_TOKENS = 1024
ACCELERATOR_TOKENS = 16_384
"""Inputs of one forward pass, by device, where the caller does not choose."""
LOGIT_ROWS = 256
"""Positions whose logits are cast to fp32 at once; bounds the copies, not the logits themselves."""

TokenWindow = tuple[Sequence[int], Sequence[int]]
"""(inputs, targets): the last len(targets) inputs predict the targets, one each."""


def score(model: Any, windows: Sequence[TokenWindow], *, batch_tokens: int | None = None) -> list[list[float]]:
    """−ln p of each target in nats, window by window, in the order given.

    model: a causal language model, bare or under PEFT or an engine; it is put in evaluation mode meanwhile.
    batch_tokens: inputs of one forward pass, at least one row; None chooses by device. Softmax in fp32.
    Raises ModelError for a token that the model does not have.
    """
    scored: list[list[float]] = [[] for _ in windows]
    wanted = [index for index, (_, targets) in enumerate(windows) if len(targets)]
    if not wanted:
        return scored
    device = next(base_of(model).parameters()).device
    if batch_tokens is None:
        batch_tokens = CPU_TOKENS if device.type == "cpu" else ACCELERATOR_TOKENS
    with evaluating(model), torch.no_grad():
        for rows in _batches(
            _pack(windows, wanted, isolated=not is_recurrent(text_config(model))), windows, batch_tokens
        ):
            nats = iter(_forward(model, rows, windows, device))
            for index in (index for row in rows for index in row):
                scored[index] = [next(nats) for _ in windows[index][1]]
    return scored


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """The model in evaluation mode (no dropout) inside, as it was afterwards."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def _pack(windows: Sequence[TokenWindow], wanted: Sequence[int], *, isolated: bool) -> list[list[int]]:
    """Window indices in rows: best fit, longest first, each row at most as long as the longest window.

    A model that carries a state (`isolated` false) gets a row for each window.
    """
    order = sorted(wanted, key=lambda index: (-len(windows[index][0]), index))
    if not isolated:
        return [[index] for index in order]
    capacity = len(windows[order[0]][0])
    rows: list[list[int]] = []
    room: list[tuple[int, int]] = []
    for index in order:
        length = len(windows[index][0])
        place = bisect_left(room, (length, -1))
        free, row = room.pop(place) if place < len(room) else (capacity, len(rows))
        if row == len(rows):
            rows.append([])
        rows[row].append(index)
        insort(room, (free - length, row))
    return rows


def _batches(
    rows: Sequence[list[int]], windows: Sequence[TokenWindow], batch_tokens: int
) -> Iterator[Sequence[list[int]]]:
    def length(row: list[int]) -> int:
        return sum(len(windows[index][0]) for index in row)

    longest_first = sorted(rows, key=length, reverse=True)
    size = max(1, batch_tokens // length(longest_first[0]))
    for start in range(0, len(longest_first), size):
        yield longest_first[start : start + size]


def _forward(
    model: Any, rows: Sequence[list[int]], windows: Sequence[TokenWindow], device: torch.device
) -> list[float]:
    """Nats of all targets of `rows`, in the order of rows, windows and targets."""
    length = max(sum(len(windows[index][0]) for index in row) for row in rows)
    tokens, segments, positions = (torch.zeros(len(rows), length, dtype=torch.long) for _ in range(3))
    wanted: list[torch.Tensor] = []
    labels: list[int] = []
    for number, row in enumerate(rows):
        end = 0
        for segment, index in enumerate(row, start=1):
            inputs, targets = windows[index]
            start, end = end, end + len(inputs)
            tokens[number, start:end] = torch.as_tensor(inputs, dtype=torch.long)
            segments[number, start:end] = segment
            positions[number, start:end] = torch.arange(len(inputs))
            wanted.append(number * length + torch.arange(end - len(targets), end))
            labels.extend(targets)
    _check_vocabulary(model, max(int(tokens.max()), max(labels)))
    inputs_of_model = forward_inputs(tokens.to(device), segments.to(device), positions.to(device), model)
    logits = logits_at(model, inputs_of_model, torch.cat(wanted).to(device))
    expected = torch.tensor(labels, device=device)
    parts = zip(logits.split(LOGIT_ROWS), expected.split(LOGIT_ROWS), strict=True)
    return torch.cat([token_nll(part, label) for part, label in parts]).tolist()


def _check_vocabulary(model: Any, token: int) -> None:
    base: Any = base_of(model)
    known = base.get_input_embeddings().weight.shape[0]
    if token >= known:
        raise ModelError(
            f"token {token}, but the model knows only {known}",
            next_step="use the tokenizer that belongs to this model",
        )
