"""Rules between keys of different sections. Each takes the parsed parts it needs and yields problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from typing import Any

from cairn.errors import Problem, did_you_mean
from cairn.plugins import TRACKERS


def cross_checks(parts: Mapping[str, Any]) -> Iterator[Problem]:
    """Every rule whose sections all parsed."""
    for needed, rule in RULES:
        if all(parts.get(name) is not None for name in needed):
            yield from rule(*(parts[name] for name in needed))


def batch_divides(training: Any) -> Iterator[Problem]:
    """The global batch is a whole number of forward passes for every worker."""
    passes = training.micro_batch * training.workers
    if training.global_batch % passes:
        fitting = max(passes, round(training.global_batch / passes) * passes)
        yield Problem(
            "training.global_batch",
            training.global_batch,
            f"not a multiple of micro_batch × workers = {training.micro_batch} × {training.workers}",
            f"use {fitting}",
        )


def offload_needs_zero(training: Any) -> Iterator[Problem]:
    """Optimizer offload is part of ZeRO."""
    if training.offload_optimizer and training.zero_stage == 0:
        yield Problem("training.offload_optimizer", True, "needs ZeRO", "set training.zero_stage to 1, 2 or 3")


def trackers_exist(training: Any) -> Iterator[Problem]:
    """Every tracker is a plugin."""
    for name in training.trackers:
        if name not in TRACKERS.names():
            yield Problem("training.trackers", name, "there is no such tracker", did_you_mean(name, TRACKERS.names()))


def format_exists(data: Any) -> Iterator[Problem]:
    """A format is auto, a YAML file of `data/formats` (looked up by name, so that no data code is imported), a YAML
    of the user's own, or like one of these."""
    folder = resources.files("cairn.data.formats")
    names = {"auto", *(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml"))}
    own = [(f"data.train.{i}.format", entry.format) for i, entry in enumerate(data.train) if not isinstance(entry, str)]
    for path, choice in [("data.format", data.format), *own]:
        name = choice.get("like", "") if isinstance(choice, dict) else choice
        if name is None or name in names or str(name).endswith((".yaml", ".yml")):
            continue
        if isinstance(choice, dict) and not name:
            yield Problem(path, choice, "says not which format it is like", "write {like: alpaca, rename: {…}}")
        else:
            yield Problem(path, name, "there is no such format", did_you_mean(str(name), names))


def datasets_are_named(data: Any) -> Iterator[Problem]:
    """An entry of data.train is a path, or a name of a catalogue."""
    for i, entry in enumerate(data.train):
        if not isinstance(entry, str) and (entry.path is None) == (entry.catalog is None):
            yield Problem(f"data.train.{i}", entry.model_dump(), "needs either path or catalog", "write {path: …}")
        elif not isinstance(entry, str) and (entry.catalog is None) != (entry.name is None):
            yield Problem(f"data.train.{i}", entry.model_dump(), "catalog and name go together", "give both")


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
    (("training",), offload_needs_zero),
    (("training",), trackers_exist),
    (("data",), format_exists),
    (("data",), template_exists),
    (("data",), datasets_are_named),
    (("search",), axes_are_whole),
)
