"""`cairn estimate`: the memory of a run before it starts, from the recipe alone; no weight is loaded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cairn.cli.arguments import Overrides, RecipePath

if TYPE_CHECKING:
    from cairn.config.recipe import Recipe
    from cairn.training.estimate import Part

NAME = "estimate"


def command(
    recipe: RecipePath,
    overrides: Overrides = None,
    gpu: Annotated[
        bool | None, typer.Option("--gpu/--cpu", help="For which; none: what the recipe and this machine say.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it for programs: bytes.")] = False,
) -> None:
    """Estimate the memory of a worker: weights, optimizer, activations, logits; for each step of a pipeline."""
    from cairn.cli.terminal import say, show_table
    from cairn.config.pipeline import load_steps
    from cairn.training.estimate import estimate

    found = []
    for step in load_steps(recipe, overrides or ()):
        on_gpu = _on_gpu(step) if gpu is None else gpu
        parts = estimate(step, on_gpu=on_gpu)
        found.append({"stage": step.stage.name, "gpu": on_gpu, "workers": step.training.most_workers, **plain(parts)})
        if not as_json:
            title = f"{step.stage.name}, {step.adapter.name}: memory of a worker on a {'GPU' if on_gpu else 'CPU'}"
            show_table(("part", "memory", ""), rows(parts), title=title)
    if as_json:
        say(json.dumps(found if len(found) > 1 else found[0], indent=1))


def plain(parts: Sequence[Part]) -> dict[str, object]:
    """The parts and their sums, in bytes."""
    return {
        "parts": [asdict(part) for part in parts],
        "device_bytes": sum(part.bytes for part in parts if not part.on_host),
        "host_bytes": sum(part.bytes for part in parts if part.on_host),
    }


def rows(parts: Sequence[Part]) -> list[tuple[str, str, str]]:
    """Name, size and note of each part, and the sums."""
    lines = [(part.name + (" (host)" if part.on_host else ""), _written(part.bytes), part.note) for part in parts]
    host = sum(part.bytes for part in parts if part.on_host)
    total = sum(part.bytes for part in parts) - host
    return [*lines, ("in all", _written(total), f"and {_written(host)} of the host" if host else "")]


def _written(size: float) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.2f} MiB"


def _on_gpu(recipe: Recipe) -> bool:
    """Where the run would compute, as far as this machine can tell."""
    import torch

    wanted = recipe.training.use_gpu
    return wanted == "yes" or (wanted == "auto" and torch.cuda.is_available())
