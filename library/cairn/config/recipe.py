"""The recipe: the one file of a run, section by section. Every default of Cairn lives here or in a plugin's Config.

The four plugin sections (`stage`, `adapter`, `optimizer`, `schedule`) are `{name: …, …}`: the name is the file stem
of the plugin, the other keys are that plugin's Config.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from cairn.config.choice import Choice
from cairn.config.data import Data, Positive
from cairn.config.goal import EarlyStopping, Goal
from cairn.config.home import default_storage
from cairn.config.model import Model
from cairn.config.section import Section


class Workers(Section):
    """As many workers as the cluster has room for: a run goes on with those that are left."""

    min: int = Field(ge=1, description="fewer wait for the cluster")
    max: int = Field(ge=1, description="more are not started")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.max < self.min:
            raise ValueError(f"max is {self.max}, less than min, {self.min}: swap them")
        return self


class Training(Section):
    """The loop: how much, how fast, on how many workers, how safely."""

    workers: Annotated[int, Field(ge=1)] | Workers = Field(
        1, description="Ray Train workers, the data-parallel degree; or {min, max}: as many as there is room for"
    )
    wait_seconds: float = Field(0.0, ge=0, description="how long to wait for nodes that the cluster may still add")
    steps: Positive | None = Field(None, description="optimizer steps; overrides epochs")
    epochs: float = Field(1.0, gt=0, description="passes over the rows")
    global_batch: Positive = Field(8, description="rows per optimizer step over all workers")
    micro_batch: Positive = Field(1, description="rows per forward pass of one worker")
    precision: Literal["fp32", "bf16"] = Field("bf16", description="dtype of weights and activations")
    zero_stage: Literal[0, 1, 2, 3] = Field(0, description="DeepSpeed ZeRO stage")
    offload_optimizer: bool = Field(False, description="keep optimizer state in CPU memory (ZeRO 1 to 3)")
    gradient_checkpointing: bool = Field(False, description="recompute activations in the backward pass")
    max_grad_norm: float = Field(1.0, ge=0, description="clip the global gradient norm; 0 leaves it")
    seed: int = Field(0, ge=0, description="seeds data order, initialisation and dropout")
    log_every: Positive = Field(1, description="steps between metric lines")
    evaluate_every: Positive | None = Field(None, description="steps between held-out evaluations; none: only the end")
    evaluate_documents: Positive = Field(32, description="held-out documents scored at each evaluation")
    evaluate_in_background: bool = Field(
        False, description="score a snapshot in another process while training goes on, with a worker's resources"
    )
    sample_every: Positive | None = Field(
        None, description="steps between texts of the model, as generation says; also at the end; none: never"
    )
    sample_prompts: tuple[str, ...] = Field((), description="what it is asked; none: the first held-out prompts")
    checkpoint_every: Positive | None = Field(None, description="steps between checkpoints; none: only the end")
    keep_checkpoints: Positive = Field(2, description="newest checkpoints kept")
    best: Goal | None = Field(
        None, description="the result is the adapter of the step where this figure was best; none: of the last step"
    )
    early_stopping: EarlyStopping | None = Field(None, description="end the run when a figure no longer improves")
    max_seconds: float | None = Field(
        None, gt=0, description="stop with a checkpoint after this time; the same command goes on, with as much time"
    )
    not_finite: Literal["stop", "skip"] = Field(
        "stop", description="a loss or gradient that is not finite ends the run, or its step is left out"
    )
    max_failures: int = Field(3, ge=0, description="restarts after a dead worker")
    cpus_per_worker: float = Field(1.0, gt=0, description="CPUs reserved for a worker")
    use_gpu: Literal["auto", "yes", "no"] = Field("auto", description="auto: when the cluster has GPUs")
    trackers: tuple[Choice, ...] = Field(
        ("jsonl", "tensorboard"),  # type: ignore[arg-type] # names, of which the loader makes choices
        description="where metrics go: names, {name: wandb, …}, or files of your own",
    )
    callbacks: tuple[Choice, ...] = Field(
        (), description="files of your own that look on: paths, or {name: ./mine.py, …}"
    )

    @property
    def fewest_workers(self) -> int:
        """With fewer the run does not begin."""
        return self.workers.min if isinstance(self.workers, Workers) else self.workers

    @property
    def most_workers(self) -> int:
        """More it does not use."""
        return self.workers.max if isinstance(self.workers, Workers) else self.workers


class Generation(Section):
    """How answers are sampled."""

    max_tokens: Positive = Field(128, description="tokens of an answer at most")
    temperature: float = Field(0.0, ge=0, description="0 is greedy")
    top_p: float = Field(1.0, gt=0, le=1, description="nucleus sampling")
    top_k: int = Field(0, ge=0, description="sample among the k likeliest; 0: all")
    stop: tuple[str, ...] = Field((), description="strings that end an answer")
    seed: int | None = Field(None, description="makes sampling repeatable")


class Evaluation(Section):
    """Bits per byte."""

    files: tuple[str, ...] = Field((), description="Pile-format files")
    window: Positive = Field(1024, description="tokens of a scoring window")
    precision: Literal["fp32", "bf16"] = Field("fp32", description="dtype of the scored model")
    limit: Positive | None = Field(None, description="score only the first N documents of each file")
    by_position: bool = Field(False, description="also report bits per token by position in the document")


class Axis(Section):
    """One searched key: a list of choices, or a range (log-uniform when `log`)."""

    choices: tuple[Any, ...] = Field((), description="values to choose among")
    low: float | None = Field(None, description="lower end of a range")
    high: float | None = Field(None, description="upper end of a range")
    log: bool = Field(False, description="sample the range log-uniformly")


class Search(Section):
    """A hyperparameter search over keys of this recipe."""

    space: dict[str, Axis] = Field({}, description="dotted recipe key → axis")
    trials: Positive = Field(8, description="samples drawn")
    concurrent: Positive = Field(1, description="trials at once")
    metric: str = Field("loss", description="a reported metric")
    mode: Literal["min", "max"] = Field("min", description="whether less or more is better")
    grace_steps: Positive = Field(1, description="reports before ASHA may stop a trial")
    reduction: int = Field(3, ge=2, description="ASHA keeps one trial in this many at each rung")
    seed: int = Field(0, ge=0, description="seeds the samples")


class Storage(Section):
    """Where runs, searches and adapters lie, and under which names."""

    path: str = Field(default_factory=default_storage, description="folder seen by every node")
    run: str | None = Field(None, description="run name; none: stage and fingerprint")
    publish: str | None = Field(None, description="publish the result in the store under this name")
    merge: bool = Field(
        False, description="also write what is published as one model, base and adapter, in merged/ of the run's folder"
    )


class Recipe(Section):
    """A whole run. Built by `cairn.config.load`, never by hand."""

    model: Model
    data: Data
    stage: Choice
    adapter: Choice
    optimizer: Choice
    schedule: Choice
    training: Training
    generation: Generation
    evaluation: Evaluation
    search: Search
    storage: Storage

    def plain(self) -> dict[str, Any]:
        """The recipe as the file would say it, defaults included."""
        plain = self.model_dump(mode="json")
        for key in PLUGIN_SECTIONS:
            plain[key] = getattr(self, key).plain()
        for key in PLUGIN_LISTS:
            plain["training"][key] = [choice.plain() for choice in getattr(self.training, key)]
        return plain

    def fingerprint(self) -> str:
        """16 hex digits over everything that changes the result: not storage, search, or what only watches."""
        plain = self.plain()
        for section in ("storage", "search", "generation", "evaluation"):
            plain.pop(section)
        for key in UNPRINTED_TRAINING_KEYS:
            plain["training"].pop(key)
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def run_name(self) -> str:
        """`storage.run`, else the stage and half the fingerprint."""
        return self.storage.run or f"{Path(self.stage.name).stem}-{self.fingerprint()[:8]}"

    @property
    def run_path(self) -> Path:
        """The folder of this run under the storage path."""
        return Path(self.storage.path) / "runs" / self.run_name


SECTIONS: dict[str, type[Section]] = {
    "model": Model,
    "data": Data,
    "training": Training,
    "generation": Generation,
    "evaluation": Evaluation,
    "search": Search,
    "storage": Storage,
}
PLUGIN_SECTIONS: dict[str, tuple[str, str | None]] = {
    "stage": ("stages", None),
    "adapter": ("adapters.methods", "lora"),
    "optimizer": ("optimizers", "adamw"),
    "schedule": ("schedules", "cosine"),
}
"""Section → the plugin family and the default choice."""

PLUGIN_LISTS = {"trackers": "training.trackers", "callbacks": "training.callbacks"}
"""Key of `training` that lists plugins → their family."""

UNPRINTED_TRAINING_KEYS = (
    "workers", "wait_seconds", "micro_batch", "zero_stage", "offload_optimizer", "gradient_checkpointing", "cpus_per_worker", "use_gpu", "log_every", "evaluate_every", "evaluate_documents", "evaluate_in_background", "sample_every", "sample_prompts",
    "checkpoint_every", "keep_checkpoints", "max_failures", "max_seconds", "trackers",
)  # fmt: skip
"""Keys that change how a run is carried out or watched, not what it computes: a run may be resumed with others."""
