"""Finding a learning rate: a short training whose rate grows from step to step, and where the loss falls fastest.

The range test of Smith (2017, arXiv 1506.01186, section 3.3), with rates that grow exponentially. It runs on the recipe's
own data, batch and optimizer, from the very weights the run would begin with, and writes nothing into the run's folder.
The rate to begin with is a tenth of that of the steepest descent, for the loss answers a rate some steps later. Cost: as
many steps, no checkpoint.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cairn.config.recipe import Recipe
from cairn.data.reading import Reading
from cairn.errors import UserError
from cairn.training import checkpoint
from cairn.training.batches import next_batches
from cairn.training.run import build
from cairn.training.session import Session
from cairn.training.state import replace_text

STEPS, LOWEST, HIGHEST = 100, 1e-7, 1.0
MEMORY = 0.9
"""Share of the past in the smoothed loss."""
DIVERGED = 4.0
"""Times the least smoothed loss at which nothing more is to be learnt."""
CAUTION = 10.0
FILE = "learning_rates.json"


@dataclass(frozen=True)
class Trial:
    """One step: its rate, its loss, and the loss smoothed over the steps before."""

    learning_rate: float
    loss: float
    smoothed: float


@dataclass(frozen=True)
class Sweep:
    """The steps up to where the loss ran away, and the rate that they suggest; None where the loss never fell."""

    trials: tuple[Trial, ...]
    suggestion: float | None

    def save(self, folder: Path) -> None:
        """`learning_rates.json` in `folder`."""
        replace_text(folder / FILE, json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, folder: Path) -> Sweep:
        """What `save` wrote."""
        values = json.loads((folder / FILE).read_text())
        return cls(tuple(Trial(**trial) for trial in values["trials"]), values["suggestion"])


def folder_of(recipe: Recipe) -> Path:
    """`learning_rates/RUN/` under the storage path, beside `runs/`."""
    return Path(recipe.storage.path) / "learning_rates" / recipe.run_name


def sweep(recipe: Recipe, train: Path, validation: Sequence[Reading], session: Session, *, steps: int = STEPS) -> Sweep:
    """Train `steps` steps with growing rates; every worker calls it with a session that has no checkpoint.

    UserError for an optimizer without a learning rate.
    """
    given = getattr(recipe.optimizer.config, "learning_rate", None)
    if not given:
        raise UserError(
            f"the optimizer '{recipe.optimizer.name}' has no learning rate to find",
            where="optimizer",
            next_step="name an optimizer that has",
        )
    run = build(recipe, train, tuple(validation), session)
    _, cursor, _ = checkpoint.resume(run)
    trials: list[Trial] = []
    average = 0.0
    for step in range(steps):
        rate = LOWEST * (HIGHEST / LOWEST) ** (step / (steps - 1))
        batches, cursor = next_batches(run, cursor)
        result = run.engine.step(batches, run.stage, rate_factor=rate / given)
        average = MEMORY * average + (1 - MEMORY) * result.loss.value
        smoothed = average / (1 - MEMORY ** (step + 1))
        if not result.applied or (trials and smoothed > DIVERGED * min(trial.smoothed for trial in trials)):
            break
        trials.append(Trial(rate, result.loss.value, smoothed))
    return Sweep(tuple(trials), suggestion(trials))


def suggestion(trials: Sequence[Trial]) -> float | None:
    """A tenth of the rate at which the smoothed loss falls fastest per factor of the rate; None where it never falls."""
    slopes = [
        ((after.smoothed - before.smoothed) / math.log(after.learning_rate / before.learning_rate), here.learning_rate)
        for before, here, after in zip(trials, trials[1:], trials[2:], strict=False)
    ]
    slope, rate = min(slopes, default=(0.0, 0.0))
    return rate / CAUTION if slope < 0 else None


def table(found: Sweep, *, rows: int = 12) -> list[tuple[str, str]]:
    """Rate and smoothed loss at evenly spaced steps."""
    last = len(found.trials) - 1
    places = sorted({round(i * last / (rows - 1)) for i in range(rows)}) if last > 0 else range(last + 1)
    chosen: list[Any] = [found.trials[place] for place in places]
    return [(f"{trial.learning_rate:.2e}", f"{trial.smoothed:.4f}") for trial in chosen]
