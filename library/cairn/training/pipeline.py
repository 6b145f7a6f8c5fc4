"""The steps of a pipeline, one after the other, each from the result before it that it can follow.

Every step is an ordinary run with a folder of its own, so a pipeline that was killed goes on in the step where it was:
finished steps are found finished.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cairn.config.load import with_overrides
from cairn.config.recipe import Recipe
from cairn.plugins import STAGES
from cairn.training.folder import TrainingResult

Train = Callable[[Recipe], TrainingResult]


def carry_out(steps: Sequence[Recipe], train: Train) -> list[TrainingResult]:
    """The results of all steps; `train` carries out one recipe, or finds it done. A step that pauses (a time limit) is
    the last for now."""
    results: list[TrainingResult] = []
    for number, step in enumerate(steps):
        results.append(train(following(step, steps[:number], results)))
        if not results[-1].finished:
            break
    return results


def following(step: Recipe, before: Sequence[Recipe], results: Sequence[TrainingResult]) -> Recipe:
    """`step`, going on from the newest of `results` that still speaks; as it is where it says itself what from.

    A reward model answers nothing, so what comes after it goes on from what it was made of.
    """
    if step.model.adapter is not None:
        return step
    speaking = [
        result
        for recipe, result in zip(before, results, strict=True)
        if STAGES.load(recipe.stage.name, recipe.stage.source).head == "language"
    ]
    if not speaking:
        return step
    last = speaking[-1]
    return with_overrides(step, {"model.adapter": last.published or str(last.adapter_path)})
