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
from cairn.adapters.train_hook import TrainHook
from cairn.config.checks import quantised_base_is_frozen_and_whole
from cairn.config.recipe import Recipe
from cairn.data.feed import Feed, Prepared, open_feed
from cairn.data.pipeline import load_tokenizer_of
from cairn.data.reading import Reading
from cairn.errors import ModelError
from cairn.models.attention import sees_prefixes
from cairn.models.kernels.frozen_linear import use_frozen_linears
from cairn.models.kernels.segment_attention import use_segment_attention
from cairn.models.load import load_model, require_positions
from cairn.models.quantization import is_quantised
from cairn.plugins import METHODS, OPTIMIZERS, SCHEDULES, STAGES
from cairn.schedules.base import Schedule
from cairn.stages.base import Stage
from cairn.training.ahead import Ahead, computed_ahead
from cairn.training.beginning import begun
from cairn.training.engine import Engine
from cairn.training.reference import reference_for
from cairn.training.session import Session
from cairn.training.start import Start, start_of


@dataclass(frozen=True)
class Run:
    """The parts. `validation` is what is evaluated; `total_steps` are optimizer steps.

    `hook`: what the method does beside descending the gradient. `shares_prompts`: the answers of a pair see one prompt. `ahead`: the reference's figures, where computed before.
    """

    recipe: Recipe
    session: Session
    engine: Engine
    stage: Stage
    method: Method
    hook: TrainHook | None
    schedule: Schedule
    tokenizer: Any
    feed: Feed
    validation: tuple[Reading, ...]
    total_steps: int
    shares_prompts: bool
    ahead: Ahead | None


def build(recipe: Recipe, train: Path, validation: tuple[Reading, ...], session: Session) -> Run:
    """All parts of `recipe` for this worker; `train` is a folder of rows, `validation` what is evaluated."""
    settings = recipe.training
    feed = open_feed(recipe.data, train, leads=session.rank == 0)
    tokenizer = load_tokenizer_of(recipe)
    method: Method = METHODS.make(recipe.adapter)
    stage: Stage = STAGES.make(recipe.stage)
    start = start_of(recipe)
    model = _trainable_model(recipe, stage, method, start, session, feed, tokenizer)
    reference = reference_for(stage, model, recipe, tokenizer, session.device)
    ahead = None
    if stage.ahead:
        assert isinstance(feed, Prepared), "checked with the recipe"
        pad = tokenizer.pad_token_id
        ahead = computed_ahead(stage, model, reference, feed, recipe, start, session, pad_token=pad)
        reference = reference if validation else None
    optimizer = OPTIMIZERS.make(recipe.optimizer)
    engine = Engine(
        model,
        optimizer.build([(name, p) for name, p in model.named_parameters() if p.requires_grad]),
        accumulation=math.ceil(math.ceil(settings.global_batch / session.world_size) / settings.micro_batch),
        precision=settings.precision,
        zero_stage=settings.zero_stage,
        offload_optimizer=settings.offload_optimizer,
        max_grad_norm=settings.max_grad_norm,
        device=session.device,
        reference=reference,
    )
    steps = total_steps(recipe, feed.epoch_rows)
    return Run(
        recipe=recipe,
        session=session,
        engine=engine,
        stage=stage,
        method=method,
        hook=method.train_hook(model, steps),
        schedule=SCHEDULES.make(recipe.schedule),
        tokenizer=tokenizer,
        feed=feed,
        validation=validation,
        total_steps=steps,
        shares_prompts=sees_prefixes(model),
        ahead=ahead,
    )


def total_steps(recipe: Recipe, rows: int | None) -> int:
    """`training.steps`, else what `training.epochs` passes over `rows` come to, rounded up."""
    settings = recipe.training
    if settings.steps is not None:
        return settings.steps
    assert rows is not None, "a recipe that streams says training.steps"
    return math.ceil(settings.epochs * rows / settings.global_batch)


def _trainable_model(
    recipe: Recipe,
    stage: Stage,
    method: Method,
    start: Start | None,
    session: Session,
    feed: Feed,
    tokenizer: Any,
) -> Any:
    settings = recipe.training
    whole = start is not None and start.is_whole_model
    model = load_model(
        str(start.folder) if start is not None and whole else recipe.model.path,
        precision=settings.precision,
        attention=recipe.model.attention,
        revision=None if whole else recipe.model.revision,
        trust_remote_code=recipe.model.trust_remote_code,
        device=session.device,
        head=stage.head,
        quantization=recipe.model.quantized,
    )
    if is_quantised(model):
        _require_an_adapter(recipe)
    require_positions(model.config, recipe.data.sequence_length, where="data.sequence_length")
    torch.manual_seed(settings.seed)
    if start is None or whole:
        model = begun(method, model, recipe, stage, session, feed, tokenizer)
    else:
        model = method.go_on(model, start.folder)
    if settings.zero_stage < 3:  # ZeRO 3 frees a weight after use, a prepacked copy would keep it
        use_frozen_linears(model, training=True)
        _fuse_lora(model)
    if sees_prefixes(model):
        use_segment_attention(model)
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def _require_an_adapter(recipe: Recipe) -> None:
    """What the recipe's own rules say of `model.quantization`, of a model that was saved quantised."""
    for problem in quantised_base_is_frozen_and_whole(recipe.model, recipe.adapter, recipe.training, quantised=True):
        raise ModelError(
            f"{problem.path}={problem.value}: {problem.message}", where=recipe.model.path, next_step=problem.advice
        )


def _fuse_lora(model: Any) -> None:
    if hasattr(model, "peft_config"):
        from cairn.adapters.fused_lora import use_fused_lora

        use_fused_lora(model)
