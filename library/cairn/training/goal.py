"""Reading a figure that a recipe names (`training.best`, `training.early_stopping`) and saying what is better."""

from __future__ import annotations

from cairn.config.goal import Goal
from cairn.errors import UserError, did_you_mean
from cairn.training.callback import Figures
from cairn.training.run import Run


def reading(run: Run, goal: Goal | None, step: int, figures: Figures) -> float | None:
    """The figure at this step; None where there is none at this step, or no goal.

    UserError when the first evaluation has passed without it: by then each figure has shown itself.
    """
    value = figures.get(goal.metric) if goal else None
    first = run.recipe.training.evaluate_every or run.total_steps
    if goal and value is None and step == min(first, run.total_steps):
        raise UserError(
            f"no step has the figure '{goal.metric}'",
            where="training.best or training.early_stopping",
            next_step=f"{did_you_mean(goal.metric, figures)}; held-out figures need data.validation and "
            "training.evaluate_every",
        )
    return value if isinstance(value, int | float) else None


def improves(value: float, best: float | None, *, mode: str, by: float = 0.0) -> bool:
    """Whether `value` is better than `best` by more than `by`; the first value is."""
    if best is None:
        return True
    return value < best - by if mode == "min" else value > best + by
