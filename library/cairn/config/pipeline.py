"""Several stages as one job: `pipeline:` is a list of recipes, each saying only what differs from the sections beside it.

    model: {path: …}
    storage: {publish: support}
    pipeline:
      - {stage: {name: sft}, data: {train: [chats.jsonl]}}
      - {stage: {name: dpo}, data: {train: [pairs.jsonl]}, optimizer: {learning_rate: 5.0e-7}}

A step goes on from the step before it (`cairn.training.pipeline`). The last result is published under
`storage.publish`, the others under that and their stage: `support-sft`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cairn.config.load import PIPELINE, apply_override, build, read
from cairn.config.recipe import PLUGIN_SECTIONS, Recipe
from cairn.errors import Problem, RecipeError


def load_steps(path: str | Path, overrides: Sequence[str] = ()) -> list[Recipe]:
    """The recipes of the file at `path` in their order: one, or those of its pipeline. `overrides` hold for each.

    Raises UserError when the file cannot be read, RecipeError with all problems of all steps at once otherwise.
    """
    values = read(path)
    given = values.pop(PIPELINE, None)
    if given is None:
        return [_built(values, overrides, where=str(path))]
    problems = [*_shape_problems(given), *_publish_problems(values, given)]
    if problems:
        raise RecipeError(problems, where=str(path))
    recipes, found = [], []
    for number in range(len(given)):
        try:
            recipes.append(_built(_step_values(values, given, number), overrides, where=str(path)))
        except RecipeError as error:
            found += [_at(problem, number) for problem in error.problems]
    if found:
        raise RecipeError(found, where=str(path))
    return recipes


def _built(values: dict[str, Any], overrides: Sequence[str], *, where: str) -> Recipe:
    problems = [problem for text in overrides for problem in apply_override(values, text)]
    return build(values, where=where, problems=problems)


def _shape_problems(steps: Any) -> Iterator[Problem]:
    if not isinstance(steps, list) or not steps:
        yield Problem(PIPELINE, steps, "a pipeline is a list of recipes", "write - {stage: {name: sft}} for each")
        return
    for number, step in enumerate(steps):
        if not isinstance(step, dict) or not all(isinstance(part, dict) for part in step.values()):
            advice = "write - {stage: {name: sft}, …}"
            yield Problem(f"{PIPELINE}.{number}", step, "a step is a mapping of sections", advice)
        elif "stage" not in step:
            yield Problem(f"{PIPELINE}.{number}.stage", None, "a step names its stage", "add stage: {name: sft}")


def _publish_problems(values: Mapping[str, Any], steps: Any) -> Iterator[Problem]:
    shared = (values.get("storage") or {}).get("publish")
    for number, step in enumerate(steps if isinstance(steps, list) else ()):
        own = (step.get("storage") or {}).get("publish") if isinstance(step, dict) else None
        if shared is None and own is None:
            advice = "set storage.publish beside pipeline: each step needs a name for its result"
            yield Problem(f"{PIPELINE}.{number}.storage.publish", None, "the result has no name", advice)


def _step_values(values: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], number: int) -> dict[str, Any]:
    """The shared sections with the step's own laid over them, and names of its own for run and result."""
    step = steps[number]
    merged = {name: _laid_over(name, values.get(name), step.get(name)) for name in {**values, **step}}
    storage, own, stage = dict(merged.get("storage") or {}), step.get("storage") or {}, step["stage"].get("name")
    if storage.get("run") and "run" not in own:
        storage["run"] = f"{storage['run']}-{number + 1}-{stage}"
    if "publish" not in own and number + 1 < len(steps):
        storage["publish"] = f"{storage['publish']}-{stage}"
    return {**merged, "storage": storage}


def _laid_over(section: str, shared: Any, own: Any) -> Any:
    """Key by key; a plugin by another name brings all its keys itself."""
    if not isinstance(shared, dict) or not isinstance(own, dict):
        return shared if own is None else own
    if section in PLUGIN_SECTIONS and own.get("name", shared.get("name")) != shared.get("name"):
        return own
    return {**shared, **own}


def _at(problem: Problem, number: int) -> Problem:
    return Problem(f"{PIPELINE}.{number}.{problem.path}", problem.value, problem.message, problem.advice)
