"""Bits per byte of held-out text at chosen steps, spread over the workers.

Documents of `data.validation`, and those that `data.hold_out` keeps from training, are scored like `cairn evaluate`
does, in windows of `data.sequence_length` tokens; conversations by the stage's own loss over their answers, which is
also reported per token. The sample is fixed: files and subsets take turns, so a file sorted by subset is no trap. Cost:
one forward pass over the sample each time; at the start up to `SEARCHED` records are read for every one that is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, zip_longest
from typing import TypeVar

from cairn.data.batch import Batch, collate
from cairn.data.drops import Rejected
from cairn.data.encoding import Encoder
from cairn.data.packing import row_of
from cairn.data.reading import Reading, records_of
from cairn.data.rows import Sample
from cairn.evaluation.bits_per_byte import score_documents, totals
from cairn.evaluation.scores import LN_2
from cairn.metrics import Metric
from cairn.records import Conversation, Document, Record
from cairn.training.callback import Callback, Figures
from cairn.training.run import Run

SEARCHED = 50
"""Records of each file looked at for every one that is kept."""

Held = Document | Conversation
Item = TypeVar("Item")


class HeldOut(Callback):
    """Adds `held_out_bpb`, and for conversations `held_out_loss`, every `training.evaluate_every` steps and at the end."""

    def start(self, run: Run, *, resumed_at: int) -> None:
        """Choose the sample; the same on every worker."""
        chosen = choose(_records(run), run.recipe.training.evaluate_documents)
        data = run.recipe.data
        encoder = Encoder(run.tokenizer, data.sequence_length, data.truncation, train_on=data.train_on)
        self.documents = [record for record in chosen if isinstance(record, Document)]
        encoded = [encoder.conversation(record) for record in chosen if isinstance(record, Conversation)]
        self.answers = [sample for sample in encoded if isinstance(sample, Sample)]

    def after_step(self, run: Run, step: int, figures: Figures) -> Figures:
        """Score when due."""
        every = run.recipe.training.evaluate_every
        due = step == run.total_steps or (every is not None and step % every == 0)
        if not due or not (self.documents or self.answers):
            return {}
        bits, seen = Metric(0.0, 0.0), {}
        if self.documents:
            bits += self._documents(run)
        if self.answers:
            loss = run.engine.evaluate(_batches(run, _mine(run, self.answers)), run.stage, counted=_counts(run))["loss"]
            bits += Metric(loss.total, LN_2 * sum(sample.source_bytes for sample in self.answers))
            seen["held_out_loss"] = loss.value
        return {"held_out_bpb": bits.value, **seen}

    def _documents(self, run: Run) -> Metric:
        window = run.recipe.data.sequence_length
        scored = totals(score_documents(run.engine.model, run.tokenizer, _mine(run, self.documents), window=window))
        counted = _counts(run)
        part = Metric(scored.nats, LN_2 * scored.bytes) if counted else Metric(0.0, 0.0)
        return run.engine.reduce({"bits": part})["bits"]


def choose(records: Iterable[Held], count: int) -> list[Held]:
    """`count` records, the subsets of each file taking turns in the order in which they first appear."""
    groups: dict[tuple[str, str], list[Held]] = {}
    for record in records:
        groups.setdefault((record.source.file, record.subset), []).append(record)
    turns = chain.from_iterable(zip_longest(*groups.values()))
    return [record for record in turns if record is not None][:count]


def _records(run: Run) -> Iterator[Held]:
    wanted = run.recipe.training.evaluate_documents
    split = sum(reading.held_out for reading in run.validation)
    for reading in run.validation:
        for record in _few_of(reading, wanted, split):
            assert isinstance(record, Document | Conversation), record
            yield record


def _few_of(reading: Reading, wanted: int, split: int) -> Iterator[Record]:
    """The first records of a file; of `split` training files so many that all together have some to choose from."""
    enough: float = SEARCHED * wanted
    if reading.held_out:
        enough = max(wanted, enough * reading.hold_out.share) / split
    records = (record for record in records_of(reading) if not isinstance(record, Rejected))
    return islice(records, math.ceil(enough))


def _mine(run: Run, items: Sequence[Item]) -> list[Item]:
    """This worker's share; under ZeRO 3 all of them, for a forward pass there is a collective."""
    together = run.engine.zero_stage == 3
    return list(items) if together else list(items[run.session.rank :: run.session.world_size])


def _counts(run: Run) -> bool:
    return run.engine.zero_stage < 3 or run.session.rank == 0


def _batches(run: Run, samples: Sequence[Sample]) -> list[Batch]:
    return [collate([row_of([sample])], pad_token=run.tokenizer.pad_token_id) for sample in samples]
