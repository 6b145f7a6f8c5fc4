"""`cairn estimate` against what a run really holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiny import save_tiny
from tests.training.runs import recipe_for
from tests.training.toys import batch

from cairn.cli.main import run as command
from cairn.config.recipe import Recipe
from cairn.data.pipeline import provided_local
from cairn.errors import UserError
from cairn.models.activations import counted
from cairn.models.quantization import quantised_bytes, quantised_linears
from cairn.training.estimate import Part, estimate
from cairn.training.folder import CHECKPOINTS, claim
from cairn.training.local import LocalSession
from cairn.training.run import Run, build

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("group")]

FACTOR = 1.5
"""Activations are estimated to within this, either way."""
LENGTH = 96


@pytest.fixture(scope="module")
def wide_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model in which a codebook is small beside a linear."""
    return save_tiny(tmp_path_factory.mktemp("wide") / "model", hidden_size=256, layers=3)


@contextmanager
def built(recipe: Recipe) -> Iterator[Run]:
    """The run, before its first step."""
    claim(recipe)
    with provided_local(recipe) as data:
        yield build(recipe, data.train, data.validation, LocalSession(recipe.run_path / CHECKPOINTS))


def sizes(recipe: Recipe, *, on_gpu: bool = True) -> dict[str, int]:
    """Part → bytes."""
    return {part.name: part.bytes for part in estimate(recipe, on_gpu=on_gpu)}


def step(run: Run) -> None:
    """One optimizer step on random tokens."""
    run.engine.step([batch(i, length=LENGTH) for i in range(run.engine.accumulation)], run.stage)


def held(engine: Any) -> int:
    """Bytes of the optimizer's state."""
    states = engine._optimizer.state.values()
    return sum(value.nbytes for state in states for value in state.values() if torch.is_tensor(value))


@pytest.mark.parametrize("zero_stage", [0, 2])
@pytest.mark.parametrize(("kind", "precision"), [(None, "fp32"), ("nf4", "bf16"), ("int8", "fp32")])
def test_what_can_be_counted_is_exact(
    kind: str | None, precision: str, zero_stage: int, wide_path: Path, tmp_path: Path
) -> None:
    training = {"precision": precision, "zero_stage": zero_stage, "micro_batch": 1, "global_batch": 1}
    model = {"path": str(wide_path), "quantization": kind}
    recipe = recipe_for(tmp_path, wide_path, model=model, training=training)
    told = sizes(recipe)
    with built(recipe) as run:
        step(run)
        parameters = list(run.engine.model.parameters())
        quantised = {id(layer.weight) for layer in quantised_linears(run.engine.model).values()}
        frozen = [p for p in parameters if not p.requires_grad and id(p) not in quantised]
        assert told["base, floats"] == sum(p.nbytes for p in frozen)
        assert told["trained weights"] == sum(p.nbytes for p in parameters if p.requires_grad)
        assert told.get("base, quantised", 0) == quantised_bytes(run.engine.model)[0]
        assert told["optimizer state"] == pytest.approx(held(run.engine), rel=0.01)
        count = sum(p.numel() for p in parameters if p.requires_grad)
        assert told.get("fp32 masters", 0) == (4 * count if zero_stage or precision == "bf16" else 0)


@pytest.mark.parametrize(
    ("quantization", "adapter"),
    [
        (None, {"name": "lora", "dropout": 0.1}),
        ("nf4", {"name": "lora"}),
        (None, {"name": "full"}),
        (None, {"name": "alora", "invocation": [10]}),
        (None, {"name": "prompt_tuning", "num_virtual_tokens": 2 * LENGTH}),
    ],
)
def test_activations_are_close(
    quantization: str | None, adapter: dict[str, Any], wide_path: Path, tmp_path: Path
) -> None:
    def recipe_of(**training: Any) -> Recipe:
        return recipe_for(
            tmp_path,
            wide_path,
            model={"path": str(wide_path), "quantization": quantization},
            data={"sequence_length": LENGTH},
            adapter=adapter,
            training={"micro_batch": 2, "global_batch": 2, **training},
        )

    told = sizes(recipe_of())["activations"]
    with built(recipe_of()) as run:
        run.engine.model.train()
        with counted(run.engine.model) as kept:
            output = run.stage.loss(batch(0, length=LENGTH, rows=2), run.engine.models)
        assert output.total.requires_grad
        assert told / FACTOR <= sum(kept.values()) <= told * FACTOR
    assert sizes(recipe_of(gradient_checkpointing=True))["activations"] < told / 1.5


def test_workers_and_stages_divide(wide_path: Path, tmp_path: Path) -> None:
    def told(stage: int, workers: int = 4, **training: Any) -> dict[str, Part]:
        settings = {"zero_stage": stage, "workers": workers, "global_batch": 8, "precision": "bf16", **training}
        recipe = recipe_for(tmp_path, wide_path, "dpo", training=settings)
        return {part.name: part for part in estimate(recipe, on_gpu=True)}

    alone = told(0)
    for stage in (1, 2, 3):
        parts = told(stage)
        assert parts["optimizer state"].bytes == alone["optimizer state"].bytes // 4
        assert parts["gradients"].bytes == alone["gradients"].bytes // (1 if stage == 1 else 4)
        assert parts["base, floats"].bytes == alone["base, floats"].bytes // (4 if stage == 3 else 1)
    assert "reference model" not in alone, "an adapter's reference is its own base"
    assert told(1, offload_optimizer=True)["optimizer state"].on_host
    assert "prepacked weights" not in alone


def test_a_method_that_needs_the_weights_says_so(wide_path: Path, tmp_path: Path) -> None:
    for name in ("frod", "vblora"):
        with pytest.raises(UserError, match=f"'{name}' on this model cannot be followed without weights"):
            estimate(recipe_for(tmp_path, wide_path, adapter={"name": name}), on_gpu=True)


def test_the_command(wide_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = recipe_for(tmp_path, wide_path, model={"path": str(wide_path), "quantization": "nf4"})
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps(recipe.plain()))
    assert command(["estimate", str(file), "--gpu"]) == 0
    assert "memory of a worker on a GPU" in capsys.readouterr().out
    assert command(["estimate", str(file), "--cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["device_bytes"] == sum(part["bytes"] for part in found["parts"])
    assert {"base, quantised", "activations", "prepacked weights"} <= {part["name"] for part in found["parts"]}
