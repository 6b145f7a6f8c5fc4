"""Bits per byte of held-out text at chosen steps, spread over the workers.

Documents of `data.validation`, and those that `data.hold_out` keeps from training, are scored like `cairn evaluate`
does, in windows of `data.sequence_length` tokens; anything else by the stage's own loss, conversations in bits per byte
of their answers too. The sample is fixed (`cairn.training.validation`). Cost: one forward pass over it each time, while
the step waits, or elsewhere while it does not (`cairn.training.background`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from cairn.data.chunks import encode_records
from cairn.data.conversion import converted
from cairn.data.drops import Dropped
from cairn.data.encoding import Encoder
from cairn.data.packing import row_of
from cairn.data.rows import Sample
from cairn.errors import UserError
from cairn.evaluation.bits_per_byte import score_documents, totals
from cairn.evaluation.scores import LN_2
from cairn.metrics import Metric
from cairn.records import Conversation, Document, Record
from cairn.training.batches import batch_of
from cairn.training.callback import Callback, Figures
from cairn.training.run import Run
from cairn.training.validation import held_out_records

Item = TypeVar("Item")


class HeldOut(Callback):
    """Adds what is held out, every `training.evaluate_every` steps and at the end: `held_out_bpb`, `held_out_loss`, and
    of answers that are compared or judged the stage's own figures, `held_out_accuracy` and so on."""

    def start(self, run: Run, *, resumed_at: int) -> None:
        """Choose the sample, and go on with what was being scored elsewhere."""
        self.choose(run)
        self.elsewhere: Any = None
        self.told: list[int] = []
        if run.recipe.training.evaluate_in_background:
            from cairn.training.background import Evaluations

            self.elsewhere = Evaluations(run, resumed_at=resumed_at)

    def choose(self, run: Run) -> None:
        """Choose the sample; the same on every worker."""
        chosen = held_out_records(run, run.recipe.training.evaluate_documents)
        self.documents = [record for record in chosen if isinstance(record, Document)]
        if self.documents and run.stage.head == "score":
            raise UserError(
                "a reward model gives scores, not bits per byte of documents",
                where="data.validation",
                next_step="hold out comparisons",
            )
        samples = list(_encoded(run, [record for record in chosen if not isinstance(record, Document)]))
        self.rows = [row_of([sample]) for sample in samples]
        self.said_bytes = sum(sample.source_bytes for sample in samples)

    def after_step(self, run: Run, step: int, figures: Figures) -> Figures:
        """Score when due, or begin to; the last step's model is scored here in any case."""
        every = run.recipe.training.evaluate_every
        due = step == run.total_steps or (every is not None and step % every == 0)
        if due and self.elsewhere and step < run.total_steps and (self.documents or self.rows):
            self.elsewhere.begin(step)
            return {}
        return self.score(run) if due else {}

    def late(self, run: Run, *, wait: bool) -> dict[int, Figures]:
        """What was scored elsewhere since; what was told before is written down by now."""
        if self.elsewhere is None or run.session.rank != 0:
            return {}
        self.elsewhere.forget(self.told)
        arrived: dict[int, Figures] = self.elsewhere.arrived(wait=wait)
        self.told = list(arrived)
        return arrived

    def finish(self, run: Run, adapter: Path) -> dict[str, Any]:
        """Forget the last of them."""
        self.late(run, wait=True)
        return {}

    def score(self, run: Run) -> dict[str, float]:
        """The held-out figures of the model as it stands."""
        bits, seen = Metric(0.0, 0.0), {}
        if self.documents:
            bits += self._documents(run)
        if self.rows:
            metrics = self._answers(run)
            loss = metrics.pop("loss")
            seen["held_out_loss"] = loss.value
            if run.stage.record is Conversation:
                bits += Metric(metrics.get("nll", loss).total, LN_2 * self.said_bytes)
            seen |= {f"held_out_{name}": value for name, value in run.stage.figures(metrics).items()}
        return {"held_out_bpb": bits.value, **seen} if bits.weight else seen

    def _answers(self, run: Run) -> dict[str, Metric]:
        batches = [batch_of(run, self.rows, [place]) for place in _mine(run, range(len(self.rows)))]
        return run.engine.evaluate(batches, run.stage, counted=_counts(run))

    def _documents(self, run: Run) -> Metric:
        window = run.recipe.data.sequence_length
        scored = totals(score_documents(run.engine.model, run.tokenizer, _mine(run, self.documents), window=window))
        counted = _counts(run)
        part = Metric(scored.nats, LN_2 * scored.bytes) if counted else Metric(0.0, 0.0)
        return run.engine.reduce({"bits": part})["bits"]


def _encoded(run: Run, records: Sequence[Record]) -> Iterator[Sample]:
    """The samples of what the stage eats, made of `records` where need be; what is unusable or too long is left out."""
    data, kind = run.recipe.data, run.stage.record
    encoder = Encoder(run.tokenizer, data.sequence_length, data.truncation, train_on=data.train_on)
    eaten = [made for record in records for made in converted(record, kind.__name__.lower(), data.train_on) or ()]
    for encoded in encode_records(encoder, eaten):
        yield from () if isinstance(encoded, Dropped) else encoded


def _mine(run: Run, items: Sequence[Item]) -> list[Item]:
    """This worker's share; under ZeRO 3 all of them, for a forward pass there is a collective."""
    together = run.engine.zero_stage == 3
    return list(items) if together else list(items[run.session.rank :: run.session.world_size])


def _counts(run: Run) -> bool:
    return run.engine.zero_stage < 3 or run.session.rank == 0
