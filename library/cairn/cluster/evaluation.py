"""Bits per byte over the cluster: Ray Data reads and tokenises in tasks and scores in actors that hold the model once.

    files → documents (a task a file) → items of windows (tasks) → nats (actors) → ledger (here) → report

Items cost about the same, so a book is spread over workers as evenly as a thousand abstracts. Ray repeats what a dead
worker left; the ledger checks that every target token came back exactly once. Memory: a few items per worker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from cairn.config.home import default_storage
from cairn.config.model import Kind, Quantization
from cairn.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from cairn.data.sources.location import Location
    from cairn.evaluation.report import Report
    from cairn.evaluation.subject import Subject

PRECISIONS = ("fp32", "bf16")
AS_TRAINED = "as-trained"
QUANTIZATIONS = (AS_TRAINED, "none", *get_args(Kind))
CONTEXT = 1


@dataclass(frozen=True)
class EvaluationJob:
    """What to score. `adapter`: a store reference or a folder. `limit`: documents of each file.

    `output`: folder of the report; none writes nothing. `workers`: scoring actors; none fits the cluster.
    `quantization`: how the base is held: nf4, fp4, int8, none, or as it was when the adapter was trained.
    """

    model: str
    data: tuple[str, ...]
    adapter: str | None = None
    window: int = 1024
    precision: str = "fp32"
    limit: int | None = None
    output: str | None = None
    by_position: bool = False
    storage: str | None = None
    format: str = "auto"
    subsets: tuple[str, ...] = ()
    attention: str = "auto"
    revision: str | None = None
    trust_remote_code: bool = False
    workers: int | None = None
    quantization: str = AS_TRAINED

    def files(self) -> list[Location]:
        """The data files, absolute, each once; of a dataset folder those for testing. DataError for what is missing."""
        from cairn.data.sources.files import resolve

        return list(dict.fromkeys(file.absolute() for file in resolve(self.data, split="test")))

    def subject(self) -> Subject:
        """The model and the adapter's folder, located."""
        from cairn.evaluation.subject import Subject, locate_adapter

        local = Path(self.model).expanduser()
        adapter = None
        if self.adapter is not None:
            adapter = str(locate_adapter(self.adapter, storage=self.storage or default_storage()))
        return Subject(
            model=str(local.absolute()) if local.exists() else self.model,
            adapter=adapter,
            precision=self.precision,
            attention=self.attention,
            revision=self.revision,
            trust_remote_code=self.trust_remote_code,
            quantization=self._quantization(adapter),
        )

    def _quantization(self, adapter: str | None) -> Quantization | None:
        from cairn.evaluation.subject import base_of_adapter

        if self.quantization != AS_TRAINED:
            return None if self.quantization == "none" else Quantization.parse({"kind": self.quantization})
        base = base_of_adapter(adapter)
        return base.quantization if base is not None else None

    def check(self) -> None:
        """Everything that can be refused without Ray and without weights; UserError or one of its kind."""
        from cairn.evaluation.pieces import prefix_token
        from cairn.evaluation.report import check_output
        from cairn.models.load import require_positions

        if self.precision not in PRECISIONS:
            raise UserError(
                f"there is no precision '{self.precision}'",
                where="--precision",
                next_step=did_you_mean(self.precision, PRECISIONS),
            )
        if self.quantization not in QUANTIZATIONS:
            raise UserError(
                f"there is no quantization '{self.quantization}'",
                where="--quantization",
                next_step=did_you_mean(self.quantization, QUANTIZATIONS),
            )
        if self.workers is not None and self.workers < 1:
            raise UserError(f"{self.workers} workers score nothing", next_step="give at least 1 worker")
        if self.limit is not None and self.limit < 1:
            raise UserError(f"a limit of {self.limit} documents", where="--limit", next_step="give at least 1")
        if self.window < CONTEXT:
            raise UserError(f"a window of {self.window} tokens", where="--window", next_step="give at least 1")
        self.files()
        subject = self.subject()
        require_positions(subject.load_config(), self.window, where="--window")
        prefix_token(subject.load_tokenizer())
        if self.output is not None:
            check_output(self.output)


def evaluate(job: EvaluationJob, on_progress: Callable[[int, int], None] | None = None) -> Report:
    """Score, check and write the report; the caller has connected to Ray.

    `on_progress(documents, tokens)` is called with what is done so far, as documents become whole.
    """
    from cairn.evaluation.ledger import Ledger
    from cairn.evaluation.report import Report

    job.check()
    settings = _settings(job)
    start = time.monotonic()
    ledger = Ledger()
    scores = []
    tokens = 0
    for scored in _scored_items(job):
        for score in ledger.add(scored):
            scores.append(score)
            tokens += score.tokens
            if on_progress is not None:
                on_progress(len(scores), tokens)
    ledger.close()
    files = job.files()
    report = Report(
        scores=tuple(sorted(scores, key=lambda score: (_rank(score.file, files), score.file, score.line))),
        settings=settings,
        seconds=time.monotonic() - start,
        by_position=ledger.by_position if job.by_position else None,
        warnings=tuple(_warnings(job, scores, settings["model_sha256"])),
    )
    if job.output is not None:
        report.write(job.output)
    return report


def _rank(file: str, files: Sequence[Location]) -> int:
    """Where a document's file stands among the job's; the files of a source tree stand where it does."""
    return next((index for index, location in enumerate(files) if location.holds(file)), len(files))


def _scored_items(job: EvaluationJob) -> Iterator[Any]:
    """Lists of ScoredPiece in whatever order the cluster finishes them."""
    import ray.data

    from cairn.cluster.scoring import Encode, Read, Score, plan_actors, unpack
    from cairn.data.pipeline import quiet

    plan = plan_actors(job.workers)
    subject = job.subject()
    files = [{"file": str(file)} for file in job.files()]
    context = ray.data.DataContext.get_current().copy()
    # A row that is yielded becomes a block, and so a task, of its own. Ray's repartition would do the same, but its
    # tasks claim a whole CPU each, and where an actor holds most of two CPUs they would wait for ever.
    context.target_max_block_size = 1
    with quiet(context), ray.data.DataContext.current(context):
        dataset = (
            ray.data.from_items(files, override_num_blocks=len(files))
            .map_batches(Read(job.format, job.limit, job.subsets), **plan.reading)
            .map_batches(Encode(subject, job.window), **plan.encoding)
            .map_batches(Score, fn_constructor_args=(subject, plan.threads), **plan.actor)
        )
        for batch in dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            yield from unpack(batch)


def _settings(job: EvaluationJob) -> dict[str, Any]:
    from cairn.evaluation.pieces import prefix_token
    from cairn.models.identity import base_sha256
    from cairn.store.card import library_versions

    subject = job.subject()
    settings = {key: value for key, value in asdict(job).items() if key not in ("output", "storage", "workers")}
    return {
        **settings,
        "data": [str(file) for file in job.files()],
        "model_sha256": base_sha256(subject.model, subject.revision),
        "adapter_path": subject.adapter,
        "base_quantization": subject.quantization.model_dump(mode="json") if subject.quantization else None,
        "prefix_token": prefix_token(subject.load_tokenizer()),
        "context": CONTEXT,
        "libraries": library_versions(),
    }


def _warnings(job: EvaluationJob, scores: list[Any], model_sha256: str) -> Iterator[str]:
    if lossy := sum(not score.exact for score in scores):
        yield (
            f"{lossy} of {len(scores)} documents do not come back from decode(encode(text)); "
            "bytes are those of the source text, so the figure flatters a tokenizer that drops some"
        )
    subject = job.subject()
    if not subject.is_whole_model and subject.trained_on() not in (None, model_sha256):
        yield f"the adapter '{job.adapter}' was trained on another base model than {job.model}"
