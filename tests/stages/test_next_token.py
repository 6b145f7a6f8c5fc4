"""The losses of sft and pretrain against their closed form, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.tiny import build_model

from cairn.data.batch import collate
from cairn.data.packing import row_of
from cairn.data.rows import Sample
from cairn.plugins import STAGES
from cairn.records import Conversation, Document
from cairn.stages.base import Models

pytestmark = pytest.mark.unit
NEXT_TOKEN = ["pretrain", "sft"]


def sample(seed: int, length: int, *, every: bool = False) -> Sample:
    """Random tokens; weights 0, 0.5 and 1, or all 1."""
    generator = np.random.default_rng(seed)
    weights = np.ones(length) if every else generator.choice([0.0, 0.5, 1.0], length)
    tokens = generator.integers(0, 256, length + 1)
    return Sample(tokens.astype(np.int32), weights.astype(np.float32), length, f"toy:{seed}", "toy")


def closed_form(model: torch.nn.Module, samples: list[Sample]) -> torch.Tensor:
    """−Σ weight · log softmax(logits)[label], each sample alone, straight from the definition."""
    total = torch.zeros((), dtype=torch.float64)
    for one in samples:
        tokens = torch.from_numpy(one.tokens.astype(np.int64))
        logits = model(input_ids=tokens[None, :-1]).logits[0]
        probabilities = logits.exp() / logits.exp().sum(-1, keepdim=True)
        picked = probabilities[torch.arange(len(one)), tokens[1:]]
        total = total - (torch.from_numpy(one.weights).double() * picked.log()).sum()
    return total


@pytest.mark.parametrize("name", NEXT_TOKEN)
@pytest.mark.parametrize("packed", [True, False])
def test_loss_and_gradient_equal_the_closed_form(name: str, packed: bool) -> None:
    samples = [sample(seed, 7 + 5 * seed, every=name == "pretrain") for seed in range(3)]
    rows = [row_of(samples)] if packed else [row_of([one]) for one in samples]
    wanted_model, model = build_model().double(), build_model().double()
    wanted = closed_form(wanted_model, samples)
    wanted.backward()
    output = STAGES.load(name)().loss(collate(rows, pad_token=0), Models(policy=model))
    output.total.backward()
    assert output.total.item() == pytest.approx(wanted.item(), rel=1e-12)
    assert output.weight == sum(float(one.weights.sum()) for one in samples)
    for (path, mine), theirs in zip(model.named_parameters(), wanted_model.parameters(), strict=True):
        assert torch.allclose(mine.grad, theirs.grad, rtol=1e-9, atol=1e-12), path


@pytest.mark.parametrize("name", NEXT_TOKEN)
def test_nothing_weighted_is_a_zero_connected_to_the_graph(name: str) -> None:
    batch = collate([row_of([sample(1, 9)])], pad_token=0)
    batch.weights.zero_()
    model = build_model()
    output = STAGES.load(name)().loss(batch, Models(policy=model))
    output.total.backward()
    assert output.total.item() == 0.0
    assert output.weight == 0.0
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())


def test_the_records_they_eat() -> None:
    assert STAGES.load("pretrain").record is Document
    assert STAGES.load("sft").record is Conversation
