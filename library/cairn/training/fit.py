"""Whether the recipe's adapter method fits its base model, before anything is prepared or started.

The architecture is built without weights (a second for a model of any size), so every mistake is found at once: names
that no layer has, ranks above a layer's side, blocks that divide nothing, what does not go together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cairn.adapters.coverage import coverage
from cairn.adapters.method import Method
from cairn.config.recipe import Recipe
from cairn.errors import UserError
from cairn.models.load import load_config, position_limit
from cairn.models.skeleton import skeleton
from cairn.plugins import METHODS, STAGES
from cairn.stages.base import POLICY_AT_START


def require_fit(recipe: Recipe) -> None:
    """UserError with all problems and a table of which layers are reached, where the method does not fit the model."""
    method: Method = METHODS.make(recipe.adapter)
    model = _architecture(recipe)
    problems = [*([method.refused] if method.refused else method.problems(model)), *_together(recipe, method, model)]
    if problems:
        listing = "".join(f"\n  - {problem}" for problem in problems)
        raise UserError(
            f"adapter.name={recipe.adapter.name} does not fit {recipe.model.path}:{listing}\n{coverage(method, model)}",
            where="adapter",
            next_step="mend these keys of the recipe",
        )


def _architecture(recipe: Recipe) -> Any:
    base = recipe.model
    config = load_config(base.path, base.revision, trust_remote_code=base.trust_remote_code)
    head = STAGES.load(recipe.stage.name, recipe.stage.source).head
    return skeleton(config, head=head, trust_remote_code=base.trust_remote_code)


def _together(recipe: Recipe, method: Method, model: Any) -> Iterator[str]:
    """What of the rest of the recipe the method cannot bear."""
    whole = method.makes_whole_model
    if recipe.model.quantization is not None and not method.can.quantised and not whole:
        yield f"the method works on no quantised base (model.quantization={recipe.model.quantization})"
    if recipe.model.quantization is not None and method.changes_base:
        yield f"the beginning is taken out of the base's weights, which model.quantization={recipe.model.quantization} forbids"
    if recipe.storage.merge and not method.can.merges and not whole:
        yield "storage.merge is true, and what the method learns cannot be folded into the base's weights"
    if recipe.training.zero_stage > method.can.zero_stage:
        yield (
            f"the method needs whole parameters in every step: set training.zero_stage to {method.can.zero_stage} or less"
        )
    if recipe.training.zero_stage == 3 and getattr(recipe.adapter.config, "parameters", None):
        yield "adapter.parameters changes stacked weights as wholes, which ZeRO 3 divides: set training.zero_stage to 2"
    yield from _virtual_tokens(recipe, method, model)
    yield from _beginning(recipe)
    yield from _saved_whole(recipe, model)


def _virtual_tokens(recipe: Recipe, method: Method, model: Any) -> Iterator[str]:
    """A window that they do not fit into, and layers that would run again without them."""
    length, limit = recipe.data.sequence_length, position_limit(model.config)
    if method.virtual_tokens and limit is not None and length + method.virtual_tokens > limit:
        yield (
            f"data.sequence_length={length} and {method.virtual_tokens} virtual tokens are more than the model's {limit} "
            f"positions: set data.sequence_length to at most {limit - method.virtual_tokens}"
        )
    if recipe.training.gradient_checkpointing and not method.can.checkpointing:
        yield "the method does not go with training.gradient_checkpointing"


def _beginning(recipe: Recipe) -> Iterator[str]:
    """What is missing for `adapter.init`, of a method that has it."""
    init = getattr(recipe.adapter.config, "init", None)
    if init == "loftq" and recipe.model.quantization is None:
        yield "adapter.init=loftq begins in what quantisation took away: set model.quantization=nf4"
    if init == "lora_ga" and STAGES.make(recipe.stage).reference not in (None, POLICY_AT_START):
        yield "adapter.init=lora_ga takes the gradient at step 0 beside the policy itself, not beside another reference"


def _saved_whole(recipe: Recipe, model: Any) -> Iterator[str]:
    """What is wrong with `adapter.modules_to_save`, of a method that has it."""
    saved = sorted(set(getattr(recipe.adapter.config, "modules_to_save", ())))
    targets = getattr(recipe.adapter.config, "targets", ())
    modules = dict(model.named_modules())
    tied = getattr(model.config, "tie_word_embeddings", False)
    ends = (model.get_input_embeddings(), model.get_output_embeddings()) if tied else ()
    for name in saved:
        meant = [path for path in modules if path == name or path.endswith(f".{name}")]
        if isinstance(targets, tuple) and name in targets:
            yield f"'{name}' is in adapter.targets and in adapter.modules_to_save: it is either adapted or trained whole"
        if not meant:
            yield f"adapter.modules_to_save names '{name}', which is no module of the model"
        for path in meant:
            if modules[path] in ends:
                yield f"adapter.modules_to_save names '{path}', whose weight is tied to the model's other end"
