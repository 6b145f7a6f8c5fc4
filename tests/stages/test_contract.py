"""The contract that every stage keeps, so that a new file is tested from birth."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from tests.stages.judged import PAIRS, SAID, batch_of, rows
from tests.tiny import build_model, build_scorer, build_tokenizer

from cairn.data.batch import Batch, collate
from cairn.data.encoding import Encoder
from cairn.data.mismatch import mismatched
from cairn.data.packing import row_of
from cairn.data.rows import Sample
from cairn.plugins import STAGES
from cairn.records import Comparison, Conversation, Document, Judgement, Message, Source
from cairn.stages.base import Models, Stage

pytestmark = pytest.mark.unit


def eaten_by(stage: Stage) -> Batch:
    """A batch of the record that `stage` eats."""
    encoder = Encoder(build_tokenizer(), 100)
    if stage.record is Comparison:
        return batch_of(PAIRS)
    if stage.record is Judgement:
        found = rows(SAID)
        others = mismatched(found, range(len(found)), sequence_length=160)
        return dataclasses.replace(collate(found, pad_token=0), mismatched=collate(others, pad_token=0))
    if stage.record is Document:
        return collate([row_of(encoder.document(Document(Source("f", 1), "plain text")))], pad_token=0)
    said = Conversation(Source("f", 1), (Message("user", "Which?"), Message("assistant", "this")))
    sample = encoder.conversation(said)
    assert isinstance(sample, Sample)
    return collate([row_of([sample])], pad_token=0)


def trained_by(stage: Stage) -> Any:
    """A model with the head that `stage` trains."""
    return build_scorer() if stage.head == "score" else build_model()


@pytest.mark.parametrize("name", STAGES.names())
def test_every_stage_keeps_the_contract(name: str) -> None:
    kind = STAGES.load(name)
    assert kind.__doc__
    assert kind.name == name
    assert kind.Config.parse(kind.Config().model_dump(mode="json")) == kind.Config()
    stage = kind()
    batch, model = eaten_by(stage), trained_by(stage)
    models = Models(model, trained_by(stage).requires_grad_(False))
    stage.before_step([batch], models, float)
    output = stage.loss(batch, models)
    output.total.backward()
    stage.after_step(output.metrics)
    assert output.weight == stage.weight(batch) > 0
    assert all(metric.weight > 0 for metric in output.metrics.values())
    found = [p.grad for p in model.parameters() if p.grad is not None]
    assert found
    assert all(torch.isfinite(gradient).all() for gradient in found)
    assert all(isinstance(value, float) for value in stage.state.values())
