"""The training loop. This is the page to read first.

A step: take the next global batch, let every worker carry out its share, step once on Σ loss / Σ weight, write down
the step's own figures, keep a checkpoint when one is due. What step s computes depends on the recipe and s alone:
not on the number of workers, not on how often the run was interrupted.

The order at the end of a step matters: metrics are written before the checkpoint that makes the step final, so a
worker may die anywhere and each step still stands in the log exactly once. A checkpoint travels to the storage while
training goes on, so rows are kept until the one after it is written.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import torch

from cairn.config.recipe import Recipe
from cairn.data.batch import Batch
from cairn.data.reading import Reading
from cairn.training import checkpoint, finish
from cairn.training.batches import next_batches
from cairn.training.hooks import Hooks
from cairn.training.journal import Journal
from cairn.training.memory import peak_memory_bytes
from cairn.training.not_finite import NotFinite
from cairn.training.run import Run, build
from cairn.training.session import Session


def run(recipe: Recipe, train: Path, validation: Sequence[Reading], session: Session) -> None:
    """Carry out `recipe` on the rows in `train`, from its latest checkpoint on; every worker calls it."""
    parts = build(recipe, train, tuple(validation), session)
    done, cursor, states = checkpoint.resume(parts)
    parts.feed.release(cursor)
    safe = cursor
    hooks = Hooks(parts, states, resumed_at=done)
    guard = NotFinite(parts, resumed_at=done)
    settings = recipe.training
    with Journal(parts, resumed_at=done) as journal:
        for step in range(done + 1, parts.total_steps + 1):
            if hooks.end:
                break
            batches, cursor = next_batches(parts, cursor)
            hooks.before_step(step, batches)
            figures = _step(parts, step, batches, guard)
            seen = hooks.after_step(step, figures)
            last = step == parts.total_steps or hooks.end is not None
            for earlier, known in hooks.late(last=last).items():
                journal.write(earlier, known)
            logged = last or bool(seen) or _due(step, settings.log_every)
            if logged:
                journal.write(step, figures | seen)
            kept = last or _due(step, settings.checkpoint_every)
            folder = checkpoint.save(parts, step, cursor, hooks.state()) if kept else None
            if logged or kept:
                numbers = {name: value for name, value in seen.items() if not isinstance(value, str)}
                session.report({"step": step, **figures, **numbers}, folder, name=checkpoint.checkpoint_name(step))
            if kept or settings.checkpoint_every is None:
                parts.feed.release(safe)
                safe = cursor
        finish.finish(parts, journal, hooks)


def _step(parts: Run, step: int, batches: Sequence[Batch], guard: NotFinite) -> dict[str, float]:
    """One optimizer step and its own figures by name; tokens are real ones, padding is not counted."""
    torch.manual_seed(_step_seed(parts.recipe.training.seed, step, parts.session.rank))
    started = time.monotonic()
    hook = parts.hook
    result = parts.engine.step(
        batches,
        parts.stage,
        rate_factor=parts.schedule.factor(step - 1, parts.total_steps),
        penalty=hook.penalty if hook else None,
        watched=hook.watched if hook else (),
    )
    if hook is not None and result.applied:
        values = parts.engine.masters(hook.watched)
        parts.engine.replace(hook.after_step(step, values, result.gradients))
    seconds = time.monotonic() - started
    tokens = parts.engine.total(sum(batch.real_tokens for batch in batches))
    return {
        "loss": result.loss.value,
        **parts.stage.figures(result.metrics),
        **(hook.figures() if hook else {}),
        "grad_norm": result.grad_norm,
        "learning_rate": result.learning_rate,
        "tokens": tokens,
        "tokens_per_second": tokens / seconds,
        "step_seconds": seconds,
        "peak_memory_bytes": parts.engine.largest(peak_memory_bytes(parts.session.device)),
        **guard.settle(step, batches, result),
    }


def _due(step: int, every: int | None) -> bool:
    return every is not None and step % every == 0


def _step_seed(seed: int, step: int, rank: int) -> int:
    """Dropout draws from this, so that a resumed step draws what the first attempt drew."""
    return ((seed * 1_000_003 + step) * 65_536 + rank) % 2**63
