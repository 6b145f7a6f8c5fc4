"""Rows as tensors, padded to the longest row of the batch. Padding is segment 0 and weighs nothing.

Answers that share a prompt are taken apart, each a row with a prompt of its own, for a model that cannot see a prefix
(`cairn.models.attention.sees_prefixes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch

from cairn.data.packing import assembled
from cairn.data.rows import Row, Verdicts


@dataclass(frozen=True)
class Answers:
    """The answers of a batch in their order. `ids` int64 [rows, length]: whose label a position has, −1 for nobody's.

    All else [answers]: `signs` int64 (+1 chosen or good, −1 rejected or bad), `margins` and `importances` float32,
    `ends` int64, flat positions of their last tokens, `reference` float32, log-probabilities computed ahead in nats.
    The k-th chosen and the k-th rejected answer are a pair.
    """

    ids: torch.Tensor
    signs: torch.Tensor
    margins: torch.Tensor
    importances: torch.Tensor
    ends: torch.Tensor
    reference: torch.Tensor | None = None


@dataclass(frozen=True)
class Batch:
    """All [rows, length]: `tokens`, `labels`, `segments`, `positions` int64, `weights` float32.

    `prefixes` int64: the segment that a position's own goes on from. `mismatched`: the prompts with answers to others.
    """

    tokens: torch.Tensor
    labels: torch.Tensor
    weights: torch.Tensor
    segments: torch.Tensor
    positions: torch.Tensor
    sources: tuple[tuple[str, ...], ...]
    prefixes: torch.Tensor | None = None
    answers: Answers | None = None
    mismatched: Batch | None = None

    @property
    def real_tokens(self) -> int:
        """Positions that are no padding, of rows that count."""
        return sum(int((row > 0).sum()) for row, sources in zip(self.segments, self.sources, strict=True) if sources)

    def uncounted(self) -> Batch:
        """The same to a model, and nothing to a loss: for a worker that has no row of its own left."""
        nothing: dict[str, Any] = {"sources": tuple(() for _ in self.sources)}
        if self.answers is None:
            return replace(self, weights=torch.zeros_like(self.weights), **nothing)
        answers = replace(self.answers, importances=torch.zeros_like(self.answers.importances))
        others = self.mismatched.uncounted() if self.mismatched is not None else None
        return replace(self, answers=answers, mismatched=others, **nothing)

    def to(self, device: Any) -> Batch:
        """The batch on `device`."""
        moved: Batch = _moved(self, device)
        return moved


def _moved(part: Any, device: Any) -> Any:
    """A copy of `part` with every tensor in it, and in its parts, on `device`."""
    values = {field.name: getattr(part, field.name) for field in fields(part)}
    tensors = {name: value.to(device) for name, value in values.items() if isinstance(value, torch.Tensor)}
    parts = {name: _moved(value, device) for name, value in values.items() if isinstance(value, Answers | Batch)}
    return replace(part, **tensors, **parts)


def collate(
    rows: Sequence[Row], *, pad_token: int, shared: bool = True, references: Sequence[np.ndarray] | None = None
) -> Batch:
    """Rows to a Batch. `shared`: answers see one common prompt. `references[i]` float32 [answers of row i]."""
    rows = list(rows) if shared else [alone for row in rows for alone in taken_apart(row)]
    length = max(len(row) for row in rows)

    def stack(arrays: Sequence[np.ndarray], fill: float, dtype: Any) -> torch.Tensor:
        out = np.full((len(rows), length), fill, dtype=dtype)
        for i, array in enumerate(arrays):
            out[i, : len(array)] = array
        return torch.from_numpy(out)

    prefixed = any(row.verdicts is not None and row.verdicts.prefixes.any() for row in rows)
    prefixes = [_of_positions(row, row.verdicts.prefixes if row.verdicts else None) for row in rows] if prefixed else []
    return Batch(
        tokens=stack([row.tokens for row in rows], pad_token, np.int64),
        labels=stack([row.labels for row in rows], pad_token, np.int64),
        weights=stack([row.weights for row in rows], 0.0, np.float32),
        segments=stack([row.segments for row in rows], 0, np.int64),
        positions=stack([row.positions for row in rows], 0, np.int64),
        sources=tuple(row.sources for row in rows),
        prefixes=stack(prefixes, 0, np.int64) if prefixed else None,
        answers=_answers(rows, length, stack, references) if rows[0].verdicts is not None else None,
    )


def _answers(rows: Sequence[Row], length: int, stack: Any, references: Sequence[np.ndarray] | None) -> Answers:
    ids, ends, parts, before = [], [], [], 0
    for index, row in enumerate(rows):
        assert row.verdicts is not None, "rows of one batch are of one kind"
        wanted = row.verdicts.signs != 0
        numbers = np.where(wanted, before + np.cumsum(wanted) - 1, -1)
        ids.append(_of_positions(row, numbers))
        last = np.flatnonzero(np.diff(row.segments, append=-1))
        ends.append(index * length + last[wanted])
        parts.append((row.verdicts, wanted))
        before += int(wanted.sum())

    def column(name: str, dtype: Any) -> torch.Tensor:
        return torch.from_numpy(np.concatenate([getattr(v, name)[wanted] for v, wanted in parts]).astype(dtype))

    return Answers(
        ids=stack(ids, -1, np.int64),
        signs=column("signs", np.int64),
        margins=column("margins", np.float32),
        importances=column("importances", np.float32),
        ends=torch.from_numpy(np.concatenate(ends).astype(np.int64)),
        reference=torch.from_numpy(np.concatenate(references).astype(np.float32)) if references else None,
    )


def _of_positions(row: Row, of_segments: np.ndarray | None) -> np.ndarray:
    return np.zeros(len(row), dtype=np.int64) if of_segments is None else of_segments[row.segments - 1]


def taken_apart(row: Row) -> list[Row]:
    """Each answer of `row` as a row of its own, its prompt before it; [row] where nothing is shared."""
    verdicts = row.verdicts
    if verdicts is None or not verdicts.prefixes.any():
        return [row]
    rows = []
    for segment in np.flatnonzero(verdicts.signs) + 1:
        prefix = int(verdicts.prefixes[segment - 1])
        places = np.flatnonzero((row.segments == segment) | ((row.segments == prefix) & (prefix > 0)))
        one = slice(segment - 1, segment)
        rows.append(
            assembled(
                tokens=row.tokens[places],
                labels=row.labels[places],
                weights=row.weights[places],
                lengths=np.array([len(places)], dtype=np.int32),
                source_bytes=row.source_bytes[one],
                sources=row.sources[one],
                verdicts=Verdicts(
                    np.zeros(1, dtype=np.int32), verdicts.signs[one], verdicts.margins[one], verdicts.importances[one]
                ),
            )
        )
    return rows
