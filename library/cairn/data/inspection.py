"""What Cairn sees in data before anything is trained: the format of each file, its records, and the text to be trained.

Reads the first rows of each file. With an encoder the counts and the text are those of the very tokens that training
would see, cut and masked as there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby, islice
from typing import Any

import msgspec
import numpy as np

from cairn.data.detection import Detection, detect
from cairn.data.documents import AUTO, FormatChoice, first_rows, read_records
from cairn.data.drops import Dropped, DropReason, Rejected, note
from cairn.data.encoding import Encoder
from cairn.data.format import Format
from cairn.data.rows import Sample
from cairn.data.sources.files import resolve
from cairn.errors import DataError
from cairn.records import Comparison, Conversation, Document, Judgement, Message, Record

DEFAULT_RECORDS, DEFAULT_SAMPLES = 1000, 3


@dataclass(frozen=True)
class FileFinding:
    """One file. `confidence` and `runner_up` are none where the format was named; `problem` where it is unknown.

    `tokens`, `trained_tokens` and `cuts` are counted where there is an encoder.
    """

    file: str
    format: str | None
    confidence: float | None
    runner_up: str | None
    records: int
    dropped: dict[str, int]
    examples: dict[str, list[str]]
    tokens: int = 0
    trained_tokens: int = 0
    cuts: dict[str, int] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class Rendering:
    """The text of one sample's tokens as (piece, trained) pairs. `name` says which answer of a pair it is."""

    name: str
    pieces: tuple[tuple[str, bool], ...]
    tokens: int
    trained_tokens: int
    cut: str


@dataclass(frozen=True)
class Shown:
    """One record, and how it would be trained; `dropped` says why it would not."""

    record: Record
    format: str
    renderings: tuple[Rendering, ...] = ()
    dropped: str = ""


@dataclass(frozen=True)
class Inspection:
    """All files, and a few records of each format."""

    files: tuple[FileFinding, ...]
    samples: tuple[Shown, ...]

    @property
    def formats(self) -> dict[str, dict[str, int]]:
        """Format → files and records."""
        totals: dict[str, Counter[str]] = {}
        for found in self.files:
            total = totals.setdefault(found.format or "(unknown)", Counter())
            total.update({"files": 1, "records": found.records, "dropped": sum(found.dropped.values())})
        return {name: dict(total) for name, total in sorted(totals.items())}

    def plain(self) -> dict[str, Any]:
        """As `--json` prints it."""
        samples = [
            {"format": shown.format, "record": msgspec.to_builtins(shown.record), "dropped": shown.dropped or None}
            | {"renderings": [asdict(rendering) for rendering in shown.renderings]}
            for shown in self.samples
        ]
        return {"formats": self.formats, "files": [asdict(found) for found in self.files], "samples": samples}


def inspect(
    paths: Iterable[str],
    *,
    format: FormatChoice = AUTO,
    encoder: Encoder | None = None,
    records: int = DEFAULT_RECORDS,
    samples: int = DEFAULT_SAMPLES,
) -> Inspection:
    """Look at the first `records` records of each file and show the first `samples` of each format.

    A file of an unknown format is told in its place; DataError for files that cannot be read at all.
    """
    findings, shown = [], []
    seen: Counter[str] = Counter()
    for path in resolve(paths):
        finding, first = _inspect_file(path, format, encoder, records, samples)
        findings.append(finding)
        for record in first[: samples - seen[str(finding.format)]]:
            seen[str(finding.format)] += 1
            shown.append(_show(record, str(finding.format), encoder))
    return Inspection(tuple(findings), tuple(shown))


def _inspect_file(
    path: Any, format: FormatChoice, encoder: Encoder | None, limit: int, samples: int
) -> tuple[FileFinding, list[Record]]:
    try:
        detection = detect(first_rows(path), where=str(path)) if format == AUTO else None
    except DataError as error:
        return FileFinding(str(path), None, None, None, 0, {}, {}, problem=str(error)), []
    chosen = detection.best.format.name if detection else Format.load(format).name
    counts: Counter[str] = Counter()
    examples: dict[str, list[str]] = {}
    good: list[Record] = []
    for record in islice(read_records([path], chosen if format == AUTO else format), limit):
        if isinstance(record, Rejected):
            note(counts, examples, record.reason, f"{record.source}: {record.detail}")
        else:
            good.append(record)
    totals = _encoded(good, encoder, counts, examples) if encoder else {}
    confidence, runner_up = _certainty(detection)
    finding = FileFinding(str(path), chosen, confidence, runner_up, len(good), dict(counts), examples, **totals)
    return finding, good[:samples]


def _encoded(
    records: list[Record], encoder: Encoder, counts: Counter[str], examples: dict[str, list[str]]
) -> dict[str, Any]:
    """Totals over the records' samples; what would be dropped is added to `counts` and `examples`."""
    before, tokens, trained = encoder.cuts.copy(), 0, 0
    for record in records:
        for _, part in _encodable(record):
            for sample in _samples(encoder, part):
                if isinstance(sample, Dropped):
                    note(counts, examples, sample.reason, f"{record.source}: {sample.detail}")
                else:
                    tokens, trained = tokens + len(sample), trained + int((sample.weights > 0).sum())
    cuts = {reason.value: count for reason, count in (encoder.cuts - before).items()}
    return {"tokens": tokens, "trained_tokens": trained, "cuts": cuts}


def _certainty(detection: Detection | None) -> tuple[float | None, str | None]:
    if detection is None:
        return None, None
    other = detection.runner_up
    return round(detection.best.confidence, 3), other.format.name if other else None


def _show(record: Record, format: str, encoder: Encoder | None) -> Shown:
    if encoder is None:
        return Shown(record, format)
    renderings: list[Rendering] = []
    for name, part in _encodable(record):
        before = encoder.cuts.copy()
        sample = _samples(encoder, part)[0]
        if isinstance(sample, Dropped):
            return Shown(record, format, tuple(renderings), f"{name} {sample.reason}: {sample.detail}".strip(" :"))
        cut = ", ".join(reason.value for reason in encoder.cuts - before)
        renderings.append(_rendering(name, sample, encoder.tokenizer, cut))
    return Shown(record, format, tuple(renderings))


def _samples(encoder: Encoder, part: Document | Conversation) -> Sequence[Sample | Dropped]:
    """At least one: the windows of a document, the sample of a conversation, or why there is none."""
    if isinstance(part, Document):
        return encoder.document(part) or [Dropped(DropReason.EMPTY)]
    return [encoder.conversation(part)]


def _encodable(record: Record) -> Iterator[tuple[str, Document | Conversation]]:
    """What of a record is encoded: of a pair each answer after the prompt, of which nothing is trained."""
    if isinstance(record, Document | Conversation):
        yield "", record
    elif isinstance(record, Judgement):
        yield ("good" if record.good else "bad"), _answered(record, record.answer)
    else:
        yield "chosen", _answered(record, record.chosen)
        yield "rejected", _answered(record, record.rejected)


def _answered(record: Comparison | Judgement, answer: tuple[Message, ...]) -> Conversation:
    untrained = tuple(msgspec.structs.replace(message, weight=0.0) for message in record.prompt)
    return Conversation(record.source, (*untrained, *answer), record.tools, subset=record.subset, id=record.id)


def _rendering(name: str, sample: Sample, tokenizer: Any, cut: str) -> Rendering:
    trained = np.concatenate([[False], sample.weights > 0])
    pieces = tuple(
        (tokenizer.decode([int(sample.tokens[i]) for i in run]), bool(flag))
        for flag, run in groupby(range(len(sample.tokens)), key=lambda i: bool(trained[i]))
    )
    return Rendering(name, pieces, len(sample), int(trained.sum()), cut)
