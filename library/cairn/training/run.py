"""Everything that a run is made of, built from the recipe: model, adapter, optimizer, schedule, stage, rows.

The same on every worker: weights and initial adapters come from one seed. Cost: each worker loads the whole base model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cairn.adapters.method import Method
from cairn.config.recipe import Recipe
from cairn.data.feed import Feed, open_feed
from cairn.data.pipeline import load_tokenizer_of
from cairn.data.reading import Reading
from cairn.models.kernels.frozen_linear import use_frozen_linears
from cairn.models.load import load_model, require_positions
from cairn.plugins import METHODS, OPTIMIZERS, SCHEDULES, STAGES
from cairn.schedules.base import Schedule
from cairn.stages.base import Stage
from cairn.training.engine import Engine
from cairn.training.session import Session


@dataclass(frozen=True)
class Run:
    """The parts. `validation` is what is evaluated; `total_steps` are optimizer steps."""

    recipe: Recipe
    session: Session
    engine: Engine
    stage: Stage
    method: Method
    schedule: Schedule
    tokenizer: Any
    feed: Feed
    validation: tuple[Reading, ...]
    total_steps: int


def build(recipe: Recipe, train: Path, validation: tuple[Reading, ...], session: Session) -> Run:
    """All parts of `recipe` for this worker; `train` is a folder of rows, `validation` what is evaluated."""
    settings = recipe.training
    feed = open_feed(recipe.data, train, leads=session.rank == 0)
    tokenizer = load_tokenizer_of(recipe)
    method: Method = METHODS.load(recipe.adapter.name)(recipe.adapter.config)
    model = _trainable_model(recipe, method, session.device)
    optimizer = OPTIMIZERS.load(recipe.optimizer.name)(recipe.optimizer.config)
    engine = Engine(
        model,
        optimizer.build([(name, p) for name, p in model.named_parameters() if p.requires_grad]),
        accumulation=settings.global_batch // (settings.micro_batch * session.world_size),
        precision=settings.precision,
        zero_stage=settings.zero_stage,
        offload_optimizer=settings.offload_optimizer,
        max_grad_norm=settings.max_grad_norm,
        device=session.device,
    )
    return Run(
        recipe=recipe,
        session=session,
        engine=engine,
        stage=STAGES.load(recipe.stage.name)(recipe.stage.config),
        method=method,
        schedule=SCHEDULES.load(recipe.schedule.name)(recipe.schedule.config),
        tokenizer=tokenizer,
        feed=feed,
        validation=validation,
        total_steps=total_steps(recipe, feed.epoch_rows),
    )


def total_steps(recipe: Recipe, rows: int | None) -> int:
    """`training.steps`, else what `training.epochs` passes over `rows` come to, rounded up."""
    settings = recipe.training
    if settings.steps is not None:
        return settings.steps
    assert rows is not None, "a recipe that streams says training.steps"
    return math.ceil(settings.epochs * rows / settings.global_batch)


def _trainable_model(recipe: Recipe, method: Method, device: torch.device) -> Any:
    settings = recipe.training
    model = load_model(
        recipe.model.path,
        precision=settings.precision,
        attention=recipe.model.attention,
        revision=recipe.model.revision,
        trust_remote_code=recipe.model.trust_remote_code,
        device=device,
    )
    require_positions(model.config, recipe.data.sequence_length, where="data.sequence_length")
    torch.manual_seed(settings.seed)
    model = method.attach(model)
    if settings.zero_stage < 3:  # ZeRO 3 frees a weight after use, a prepacked copy would keep it
        use_frozen_linears(model, training=True)
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model
