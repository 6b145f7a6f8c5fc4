"""Rules between keys of different sections. Each takes the parsed parts it needs and yields problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from typing import Any

from cairn.errors import Problem, did_you_mean

TRAINS_THE_BASE = ("full", "freeze")
"""Adapter methods whose parameters are the base's own."""


def cross_checks(parts: Mapping[str, Any]) -> Iterator[Problem]:
    """Every rule whose sections all parsed."""
    for needed, rule in RULES:
        if all(parts.get(name) is not None for name in needed):
            yield from rule(*(parts[name] for name in needed))


def batch_divides(training: Any) -> Iterator[Problem]:
    """The global batch is a whole number of forward passes for every worker, where their number is fixed."""
    if training.fewest_workers != training.most_workers:
        return
    passes = training.micro_batch * training.most_workers
    if training.global_batch % passes:
        fitting = max(passes, round(training.global_batch / passes) * passes)
        yield Problem(
            "training.global_batch",
            training.global_batch,
            f"not a multiple of micro_batch × workers = {training.micro_batch} × {training.most_workers}",
            f"use {fitting}",
        )


def every_worker_has_a_row(training: Any) -> Iterator[Problem]:
    """A worker without a row would only wait."""
    if training.most_workers > training.global_batch:
        yield Problem(
            "training.workers",
            training.most_workers,
            f"more than the {training.global_batch} rows of a global batch",
            "lower it, or raise training.global_batch",
        )


def goals_are_known_in_time(training: Any) -> Iterator[Problem]:
    """What decides at a step cannot wait for figures that come later."""
    for key, goal in (("best", training.best), ("early_stopping", training.early_stopping)):
        if training.evaluate_in_background and goal and goal.metric.startswith("held_out"):
            yield Problem(
                f"training.{key}.metric", goal.metric, "is known late", "set training.evaluate_in_background to false"
            )


def merge_needs_a_name(storage: Any) -> Iterator[Problem]:
    """What is merged is a published version."""
    if storage.merge and storage.publish is None:
        yield Problem("storage.merge", True, "only what is published is merged", "set storage.publish to a name")


def quantised_base_is_frozen_and_whole(
    model: Any, adapter: Any, training: Any, *, quantised: bool = False
) -> Iterator[Problem]:
    """Quantised weights take no gradient, and ZeRO 3 would take them apart from their scales.

    quantised: the model is, whatever `model.quantization` says.
    """
    if model.quantization is None and not quantised:
        return
    if adapter.name in TRAINS_THE_BASE:
        yield Problem(
            "adapter.name",
            adapter.name,
            "the base is quantised, and weights in few bits cannot be trained",
            "use lora, or leave model.quantization out",
        )
    if training.zero_stage == 3:
        yield Problem(
            "training.zero_stage",
            3,
            "it divides weights among the workers, and quantised ones would lose the scales that they are read with",
            "use 2: the base is whole on every worker then, and small",
        )


def offload_needs_zero(training: Any) -> Iterator[Problem]:
    """Optimizer offload is part of ZeRO."""
    if training.offload_optimizer and training.zero_stage == 0:
        yield Problem("training.offload_optimizer", True, "needs ZeRO", "set training.zero_stage to 1, 2 or 3")


def stream_has_an_end(data: Any, training: Any) -> Iterator[Problem]:
    """Nobody knows how many rows a stream has, or, with weights, where its datasets end."""
    if not data.streaming:
        return
    if training.steps is None:
        yield Problem(
            "training.steps", None, "nobody knows yet how many rows a stream has", "set how many steps to train"
        )
    given = [entry.weight for entry in data.train if not isinstance(entry, str)]
    weighted = sum(weight is not None for weight in given)
    if 0 < weighted < len(data.train):
        advice = "give each of data.train a weight, or none"
        yield Problem(
            "data.train", f"{weighted} of {len(data.train)} with a weight", "a stream needs all or none", advice
        )
    if weighted and data.arrangement == "concatenated":
        advice = "use interleaved, or leave the weights out"
        yield Problem(
            "data.arrangement", data.arrangement, "weighted datasets come round and round in a stream", advice
        )


def stream_is_not_known_ahead(data: Any, stage: Any) -> Iterator[Problem]:
    """What is computed once over all rows needs all rows."""
    if data.streaming and getattr(stage.config, "precompute_reference", False):
        yield Problem(
            "stage.precompute_reference", True, "the rows of a stream are not known before it", "leave it out"
        )


def hold_out_is_a_share_or_a_number(data: Any) -> Iterator[Problem]:
    """A number of records is whole."""
    if data.hold_out >= 1 and data.hold_out != int(data.hold_out):
        yield Problem(
            "data.hold_out", data.hold_out, "neither a share below 1 nor a whole number of records", "use 0.01 or 500"
        )


def format_exists(data: Any) -> Iterator[Problem]:
    """A format is auto, a YAML file of `data/formats` (looked up by name, so that no data code is imported), a YAML
    of the user's own, or like one of these."""
    folder = resources.files("cairn.data.formats")
    names = {"auto", *(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml"))}
    own = [(f"{path}.format", entry.format) for path, entry in _entries(data)]
    for path, choice in [("data.format", data.format), *own]:
        name = choice.get("like", "") if isinstance(choice, dict) else choice
        if name is None or name in names or str(name).endswith((".yaml", ".yml")):
            continue
        if isinstance(choice, dict) and not name:
            yield Problem(path, choice, "says not which format it is like", "write {like: alpaca, rename: {…}}")
        else:
            yield Problem(path, name, "there is no such format", did_you_mean(str(name), names))


def datasets_are_named(data: Any) -> Iterator[Problem]:
    """An entry is a path, or a name of a catalogue; what is only evaluated has no weight."""
    for path, entry in _entries(data):
        if (entry.path is None) == (entry.catalog is None):
            yield Problem(path, entry.model_dump(), "needs either path or catalog", "write {path: …}")
        elif (entry.catalog is None) != (entry.name is None):
            yield Problem(path, entry.model_dump(), "catalog and name go together", "give both")
        elif entry.weight is not None and path.startswith("data.validation"):
            yield Problem(f"{path}.weight", entry.weight, "every file of data.validation counts alike", "leave it out")


def _entries(data: Any) -> Iterator[tuple[str, Any]]:
    """The entries of data.train and data.validation that are more than a path, each with its place."""
    for key in ("train", "validation"):
        for i, entry in enumerate(getattr(data, key)):
            if not isinstance(entry, str):
                yield f"data.{key}.{i}", entry


def template_exists(data: Any) -> Iterator[Problem]:
    """A template is a file of `data/templates`, looked up by name."""
    files = resources.files("cairn.data.templates").iterdir()
    names = {file.name.removesuffix(".jinja") for file in files if file.name.endswith(".jinja")}
    if data.template is not None and data.template not in names:
        yield Problem(
            "data.template", data.template, "there is no such chat template", did_you_mean(data.template, names)
        )


def axes_are_whole(search: Any) -> Iterator[Problem]:
    """An axis has choices or both ends, and a log range is positive."""
    for key, axis in search.space.items():
        path = f"search.space.{key}"
        ranged = axis.low is not None and axis.high is not None
        if bool(axis.choices) == ranged:
            yield Problem(path, axis.model_dump(), "needs either choices or low and high", "write {choices: [4, 8]}")
        elif ranged and not axis.low < axis.high:
            yield Problem(path, [axis.low, axis.high], "low must be below high", "swap them")
        elif ranged and axis.log and axis.low <= 0:
            yield Problem(path, axis.low, "a log range begins above 0", "raise low")


RULES: tuple[tuple[tuple[str, ...], Callable[..., Iterator[Problem]]], ...] = (
    (("training",), batch_divides),
    (("training",), every_worker_has_a_row),
    (("training",), offload_needs_zero),
    (("training",), goals_are_known_in_time),
    (("model", "adapter", "training"), quantised_base_is_frozen_and_whole),
    (("storage",), merge_needs_a_name),
    (("data",), format_exists),
    (("data",), template_exists),
    (("data",), datasets_are_named),
    (("data",), hold_out_is_a_share_or_a_number),
    (("data", "training"), stream_has_an_end),
    (("data", "stage"), stream_is_not_known_ahead),
    (("search",), axes_are_whole),
)
