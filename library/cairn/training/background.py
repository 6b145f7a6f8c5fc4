"""Held-out evaluation of a snapshot, elsewhere, while training goes on.

`evaluations/step_…/` in the run folder holds the adapter as it stood after that step until its figures are written down.
Another process scores it with the very code that scores a run's own model, so the figures are the same. What a start
finds unscored is scored then. Cost: an adapter written each time, and a second base model where the scoring happens; a
third where the reference is neither that base nor another model.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import torch

from cairn.adapters.attach import attach_saved
from cairn.config.load import build
from cairn.config.recipe import Recipe
from cairn.data.batch import Batch
from cairn.data.pipeline import load_tokenizer_of
from cairn.data.reading import Reading
from cairn.evaluation.subject import PEFT_CONFIG
from cairn.metrics import Metric, merge
from cairn.models.attention import sees_prefixes
from cairn.models.kernels.frozen_linear import use_frozen_linears
from cairn.models.load import load_model
from cairn.plugins import CALLBACKS, METHODS, STAGES
from cairn.stages.base import Models, Stage
from cairn.training.checkpoint import checkpoint_name, save_adapter
from cairn.training.reference import Frozen, Kind, Reference, kind_of_reference, reference_for
from cairn.training.run import Run
from cairn.training.start import start_of

EVALUATIONS = "evaluations"
STAGE = "stage.json"
"""In a snapshot's folder: what the stage remembers of the steps before."""


@dataclass
class Alone:
    """What scoring asks of an engine, for one process with a whole model."""

    model: Any
    reference: Reference | None
    zero_stage: int = 0

    @torch.no_grad()
    def evaluate(self, batches: Sequence[Batch], stage: Stage, *, counted: bool = True) -> dict[str, Metric]:
        """As `Engine.evaluate`."""
        device, models = next(self.model.parameters()).device, Models(self.model, self.reference)
        batches = [batch.to(device) for batch in batches]
        stage.before_step(batches, models, float)
        outputs = [stage.loss(batch, models) for batch in batches]
        return merge({"loss": Metric(out.total.item(), out.weight), **out.metrics} for out in outputs)

    def reduce(self, metrics: dict[str, Metric]) -> dict[str, Metric]:
        """There is nobody to add up with."""
        return metrics


def score(values: dict[str, Any], validation: list[Any], folder: str, device: str) -> dict[str, float]:
    """The held-out figures of the adapter or model in `folder`, by the plain recipe `values`, in a process of its own."""
    recipe = build(values, where="the recipe sent to the evaluation")
    stage: Stage = STAGES.make(recipe.stage)
    stage.state.update(json.loads((Path(folder) / STAGE).read_text()))
    model = _frozen(recipe, stage, Path(folder), device)
    tokenizer = load_tokenizer_of(recipe)
    run: Any = SimpleNamespace(
        recipe=recipe,
        stage=stage,
        engine=Alone(model, _reference(stage, model, recipe, tokenizer, device)),
        session=SimpleNamespace(rank=0, world_size=1),
        tokenizer=tokenizer,
        validation=tuple(msgspec.convert(validation, list[Reading])),
        shares_prompts=sees_prefixes(model),
    )
    callback = CALLBACKS.load("held_out")()
    callback.choose(run)
    figures: dict[str, float] = callback.score(run)
    return figures


def _frozen(recipe: Recipe, stage: Stage, result: Path | None, device: str) -> Any:
    """The recipe's base with the adapter of `result`, the whole model that `result` is, or with none the base."""
    whole = result is not None and not (result / PEFT_CONFIG).is_file()
    model = load_model(
        str(result) if whole else recipe.model.path,
        precision=recipe.training.precision,
        attention=recipe.model.attention,
        revision=None if whole else recipe.model.revision,
        trust_remote_code=recipe.model.trust_remote_code,
        device=device,
        head=stage.head,
        quantization=recipe.model.quantized,
    )
    model = model if whole or result is None else attach_saved(model, result)
    use_frozen_linears(model, training=False)
    return model


def _reference(stage: Stage, model: Any, recipe: Recipe, tokenizer: Any, device: str) -> Reference | None:
    """That of `cairn.training.reference`, whose copies of the policy at step 0 must be loaded here."""
    if kind_of_reference(stage, recipe) in (Kind.ADAPTER_COPY, Kind.MODEL_COPY):
        method, start = METHODS.make(recipe.adapter), start_of(recipe)
        policy = _frozen(recipe, stage, start.folder if start is not None else None, device)
        if start is None and not method.off_is_start and not method.first_rows:
            torch.manual_seed(recipe.training.seed)
            policy = method.attach(policy)
        return Frozen(policy)
    return reference_for(stage, model, recipe, tokenizer, torch.device(device))


class Evaluations:
    """The first worker's snapshots that are being scored."""

    def __init__(self, run: Run, *, resumed_at: int) -> None:
        self.run = run
        self.pending: dict[int, Future[dict[str, float]]] = {}
        self.folder = run.recipe.run_path / EVALUATIONS
        for left in sorted(self.folder.glob("step_*")) if run.session.rank == 0 else ():
            step = int(left.name.removeprefix("step_"))
            if step <= resumed_at:
                self._send(step)
            else:
                shutil.rmtree(left)

    def begin(self, step: int) -> None:
        """Have the model as it stands now scored; every worker calls it."""
        target = self.folder / checkpoint_name(step)
        draft = target.with_name(f".{target.name}")
        if self.run.session.rank == 0:
            shutil.rmtree(draft, ignore_errors=True)
            shutil.rmtree(target, ignore_errors=True)
        save_adapter(self.run, draft)
        if self.run.session.rank == 0:
            (draft / STAGE).write_text(json.dumps(self.run.stage.state))
            draft.rename(target)
            self._send(step)

    def arrived(self, *, wait: bool) -> dict[int, dict[str, float]]:
        """Step → figures of what is scored since, on the first worker; with `wait` of all that is pending."""
        done = {step: future.result() for step, future in self.pending.items() if wait or future.done()}
        for step in done:
            del self.pending[step]
        return done

    def forget(self, steps: Iterable[int]) -> None:
        """Their figures are written down."""
        for step in steps:
            shutil.rmtree(self.folder / checkpoint_name(step))

    def _send(self, step: int) -> None:
        folder: Path = self.folder / checkpoint_name(step)
        recipe: Recipe = self.run.recipe
        validation = msgspec.to_builtins(list(self.run.validation))
        given = (recipe.plain(), validation, str(folder), self.run.session.device.type)
        self.pending[step] = self.run.session.background(score, given, cpus=recipe.training.cpus_per_worker)
