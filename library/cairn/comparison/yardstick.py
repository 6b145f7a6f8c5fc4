"""The yardstick: the held-out pairs, prompts and documents that every run is measured by, encoded once.

Nothing here depends on a stage: a run is measured by the same tokens as any other, whatever it was trained on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from cairn.comparison.runs import FinishedRun
from cairn.data.documents import read_documents, read_records
from cairn.data.drops import Dropped, Rejected
from cairn.data.encoding import Encoder
from cairn.data.judging import judged_samples
from cairn.data.named_templates import choose_template
from cairn.data.packing import pack
from cairn.data.plan import evaluated
from cairn.data.prompts import prompt_tokens
from cairn.data.reading import Reading, records_of
from cairn.data.rows import Row
from cairn.errors import DataError, UserError
from cairn.records import Comparison, Document, Record
from cairn.training.validation import choose

SEARCHED = 50
"""Records looked at for every pair that is kept."""


@dataclass(frozen=True)
class Settings:
    """`pairs`: files of comparisons; empty for what the runs themselves evaluated. `files`: documents for bits per byte.

    `limit`: pairs at most, and documents of each file. `answers`: prompts that are answered, in up to `max_tokens`.
    """

    pairs: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    limit: int = 256
    answers: int = 32
    max_tokens: int = 128
    precision: str = "fp32"


@dataclass(frozen=True)
class Yardstick:
    """`rows` hold the `pairs` pairs, `prompts` are texts with their tokens. `left_out`: records by reason."""

    rows: tuple[Row, ...]
    pairs: int
    left_out: dict[str, int]
    pair_files: tuple[str, ...]
    prompts: tuple[tuple[str, tuple[int, ...]], ...]
    documents: tuple[Document, ...]
    window: int
    max_tokens: int


def build_yardstick(runs: Sequence[FinishedRun], settings: Settings, tokenizer: Any) -> Yardstick:
    """UserError where there are no pairs, or the runs evaluated different data and `pairs` names none."""
    window = max(run.recipe.data.sequence_length for run in runs)
    left_out: Counter[str] = Counter()
    compared = _comparisons(_records(runs, settings), settings.limit, left_out)
    samples, kept = [], []
    for pair, sample in zip(compared, judged_samples(Encoder(tokenizer, window), compared), strict=True):
        if isinstance(sample, Dropped):
            left_out[sample.reason] += 1
        else:
            samples.append(sample)
            kept.append(pair)
    if not kept:
        raise _no_pairs(settings, left_out)
    return Yardstick(
        rows=tuple(pack(samples, window)),
        pairs=len(kept),
        left_out={str(reason): count for reason, count in left_out.items()},
        pair_files=tuple(dict.fromkeys(pair.source.file for pair in kept)),
        prompts=tuple(islice(_prompts(tokenizer, kept), settings.answers)),
        documents=tuple(_documents(settings)),
        window=window,
        max_tokens=settings.max_tokens,
    )


def shared_tokenizer(runs: Sequence[FinishedRun], precision: str) -> Any:
    """The tokenizer of all runs; UserError where they write conversations differently."""
    tokenizers = {run.name: run.subject(precision).load_tokenizer() for run in runs}
    (first, tokenizer), *others = tokenizers.items()
    for name, other in others:
        if other.chat_template != tokenizer.chat_template:
            raise UserError(
                f"'{first}' and '{name}' write conversations by different chat templates: one answer is other tokens",
                where="data.template",
                next_step="compare runs of one template",
            )
    choose_template(tokenizer, None, where=runs[0].recipe.model.path)
    return tokenizer


def _records(runs: Sequence[FinishedRun], settings: Settings) -> Iterator[Record | Rejected]:
    if settings.pairs:
        return read_records(settings.pairs)
    readings = {run.name: _plain(evaluated(run.recipe)) for run in runs}
    (first, shared), *others = readings.items()
    for name, other in others:
        if other != shared:
            raise UserError(
                f"'{first}' and '{name}' were evaluated on different data",
                where="data.validation, data.hold_out",
                next_step="name files of comparisons that no run was trained on: --pairs FILE",
            )
    return (record for reading in shared for record in records_of(reading))


def _plain(readings: Iterable[Reading]) -> list[Reading]:
    """Which records are meant, whatever a stage makes of them."""
    return [replace(reading, kind="comparison", train_on="all") for reading in readings]


def _comparisons(records: Iterable[Record | Rejected], limit: int, left_out: Counter[str]) -> list[Comparison]:
    found: list[Comparison] = []
    for record in islice(records, SEARCHED * limit):
        if isinstance(record, Comparison):
            found.append(record)
        else:
            left_out[record.reason if isinstance(record, Rejected) else "no comparison"] += 1
    return [record for record in choose(found, limit) if isinstance(record, Comparison)]


def _prompts(tokenizer: Any, pairs: Iterable[Comparison]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Each prompt once: of a ranking's pairs it is the same."""
    seen: set[tuple[int, ...]] = set()
    for pair in pairs:
        tokens = prompt_tokens(tokenizer, pair.prompt, pair.tools)
        if tokens not in seen:
            seen.add(tokens)
            yield pair.prompt[-1].content, tokens


def _documents(settings: Settings) -> Iterator[Document]:
    for file in settings.files:
        yield from read_documents([file], limit=settings.limit)


def _no_pairs(settings: Settings, left_out: Counter[str]) -> DataError:
    reasons = "; ".join(f"{reason}: {count}" for reason, count in left_out.items()) or "no record at all"
    return DataError(
        f"there is no pair of answers to compare ({reasons})",
        where=", ".join(settings.pairs) or "what the runs evaluated",
        next_step="give files of comparisons (prompt, chosen, rejected): --pairs FILE",
    )
