"""An adapter's whole life: trained, killed, gone on with, published, served beside others, merged; the same at every station."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.runs import losses, recipe_for, run_local

from cairn.adapters.attach import attach_saved
from cairn.adapters.linear_change import AdapterChanges
from cairn.cli.main import run as command
from cairn.config.load import with_overrides
from cairn.config.model import Quantization
from cairn.generation.generator import Generator
from cairn.generation.request import Request
from cairn.generation.scoring import score
from cairn.models.identity import base_sha256, tokenizer_sha256
from cairn.models.load import load_model, load_tokenizer
from cairn.serving.catalogue import Catalogue
from cairn.training.folder import publish

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("group")]

TEXT = "The stone path over the hill in the rain"
LAST = tuple(
    f"model.layers.1.{name}" for name in ("self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj")
)
WAYS: dict[str, tuple[dict[str, Any], str | None]] = {
    "oft": ({"name": "oft", "block_size": 16, "targets": LAST}, None),
    "lora": ({"name": "lora", "rank": 4, "layers": [0, 1]}, None),
    "qlora": ({"name": "lora", "rank": 4, "layers": [0, 1]}, "nf4"),
}
DAILY = (("oft", "tiny_path"), ("qlora", "tiny_path"))


@pytest.mark.parametrize(
    ("way", "model"),
    [
        pytest.param(way, model, marks=() if (way, model) in DAILY else pytest.mark.full)
        for way in WAYS
        for model in ("tiny_path", "smollm2_path")
    ],
)
def test_trained_killed_resumed_published_served_and_merged(
    way: str, model: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(model)
    adapter, kind = WAYS[way]
    quantization = Quantization(kind=kind) if kind else None
    recipe = recipe_for(
        tmp_path,
        path,
        model={"path": str(path), **({"quantization": kind} if kind else {})},
        adapter=adapter,
        data={"sequence_length": 64},
        training={"steps": 4, "checkpoint_every": 2, "global_batch": 2, "micro_batch": 1},
        storage={"path": str(tmp_path / "storage"), "publish": "mine"},
    )
    straight = losses(run_local(with_overrides(recipe, {"storage.run": "straight"})))
    run_local(recipe, stop_after=3)
    assert losses(run_local(recipe)) == straight
    assert publish(recipe) == "mine@1"

    base, tokenizer = load_model(path, precision="fp32", quantization=quantization), load_tokenizer(path)
    tokens = tuple(tokenizer(TEXT)["input_ids"])
    catalogue = Catalogue(
        base,
        base_name="base",
        base_path=str(path),
        storage=recipe.storage.path,
        base_sha256=base_sha256(path),
        tokenizer_sha256=tokenizer_sha256(tokenizer),
    )
    served = catalogue.resolve("mine")
    weights = asyncio.run(catalogue.weights(served))
    assert isinstance(weights, AdapterChanges) == (way == "oft")
    generator = Generator(base, tokenizer)
    generator.load("mine@1", weights)
    asked = [Request(tokens, adapter=name, max_tokens=4, ignore_eos=True) for name in ("mine@1", None)]
    answer = generator.generate(asked)[0].tokens
    window = [(tokens[:-1], tokens[1:])]
    (nats,), (bare,) = generator.score(window, adapter="mine@1"), generator.score(window)
    assert nats != pytest.approx(bare, rel=1e-3)

    trained = attach_saved(load_model(path, precision="fp32", quantization=quantization), served.path)
    merged_path = tmp_path / "merged"
    export = ["export", "mine", "--to", "safetensors", "--output", str(merged_path), "--storage", recipe.storage.path]
    assert command([*export, "--precision", "fp32"]) == 0
    for other in (trained, load_model(merged_path, precision="fp32")):
        (found,) = score(other, window)
        assert found == pytest.approx(nats, abs=1e-4)
        assert sum(found) == pytest.approx(sum(nats), rel=1e-5)
        with torch.no_grad():
            logits = other(input_ids=torch.tensor([tokens + answer])).logits[0, len(tokens) - 1 : -1]
        chosen = logits.gather(-1, torch.tensor(answer)[:, None])[:, 0]
        assert float((logits.amax(-1) - chosen).max()) <= 1e-4 * float(logits.abs().max())
