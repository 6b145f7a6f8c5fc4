"""Whether the recipe's adapter method fits its base model, before anything is prepared or started.

The architecture is built without weights (a second for a model of any size), so every mistake is found at once: names
that no layer has, ranks above a layer's side, blocks that divide nothing, what does not go together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from cairn.adapters.coverage import coverage
from cairn.adapters.method import Method
from cairn.config.recipe import Recipe
from cairn.errors import UserError
from cairn.models.load import load_config
from cairn.plugins import METHODS, STAGES


def require_fit(recipe: Recipe) -> None:
    """UserError with all problems and a table of which layers are reached, where the method does not fit the model."""
    method: Method = METHODS.make(recipe.adapter)
    model = skeleton(recipe)
    problems = [*([method.refused] if method.refused else method.problems(model)), *_together(recipe, method, model)]
    if problems:
        listing = "".join(f"\n  - {problem}" for problem in problems)
        raise UserError(
            f"adapter.name={recipe.adapter.name} does not fit {recipe.model.path}:{listing}\n{coverage(method, model)}",
            where="adapter",
            next_step="mend these keys of the recipe",
        )


def skeleton(recipe: Recipe) -> Any:
    """The model of the recipe on the meta device."""
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    config = load_config(recipe.model.path, recipe.model.revision, trust_remote_code=recipe.model.trust_remote_code)
    scores = STAGES.load(recipe.stage.name, recipe.stage.source).head == "score"
    kind = AutoModelForSequenceClassification if scores else AutoModelForCausalLM
    with torch.device("meta"):
        return kind.from_config(config, trust_remote_code=recipe.model.trust_remote_code)


def _together(recipe: Recipe, method: Method, model: Any) -> Iterator[str]:
    """What of the rest of the recipe the method cannot bear."""
    whole = method.makes_whole_model
    if recipe.model.quantization is not None and not method.can.quantised and not whole:
        yield f"the method works on no quantised base (model.quantization={recipe.model.quantization})"
    if recipe.storage.merge and not method.can.merges and not whole:
        yield "storage.merge is true, and what the method learns cannot be folded into the base's weights"
    saved = set(getattr(recipe.adapter.config, "modules_to_save", ()))
    targets = (
        set(recipe.adapter.config.targets)
        if isinstance(getattr(recipe.adapter.config, "targets", ""), tuple)
        else set()
    )
    for name in sorted(saved & targets):
        yield f"'{name}' is in adapter.targets and in adapter.modules_to_save: it is either adapted or trained whole"
    paths = [path for path, _ in model.named_modules()]
    for name in sorted(saved):
        if not any(path == name or path.endswith(f".{name}") for path in paths):
            yield f"adapter.modules_to_save names '{name}', which is no module of the model"
    tied = getattr(model.config, "tie_word_embeddings", False)
    ends = {id(model.get_input_embeddings()), id(model.get_output_embeddings())} if tied else set()
    for path, module in model.named_modules():
        if id(module) in ends and any(path == name or path.endswith(f".{name}") for name in saved):
            yield f"adapter.modules_to_save names '{path}', whose weight is tied to the model's other end"
