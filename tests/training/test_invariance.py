"""Invariant 2: what a step computes does not depend on how it is carried out."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tiny import build_tokenizer
from tests.training.engines import make
from tests.training.runs import WORDS, losses, recipe_for, run_local

from cairn.data.batch import collate
from cairn.data.encoding import Encoder
from cairn.data.packing import pack, row_of
from cairn.records import Document, Source
from cairn.stages.pretrain import Pretrain

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("group")]


@pytest.fixture(scope="module")
def as_it_is(tmp_path_factory: pytest.TempPathFactory, tiny_path: Path) -> list[float]:
    """Four steps of the plain recipe."""
    return losses(run_local(recipe_for(tmp_path_factory.mktemp("plain"), tiny_path, training={"steps": 4})))


@pytest.mark.parametrize(
    "training",
    [{"micro_batch": 1}, {"micro_batch": 4}, {"gradient_checkpointing": True}, {"zero_stage": 1}, {"zero_stage": 2}, {"zero_stage": 3}],
    ids=str,
)  # fmt: skip
def test_the_way_changes_nothing(
    training: dict[str, object], as_it_is: list[float], tmp_path: Path, tiny_path: Path
) -> None:
    recipe = recipe_for(tmp_path, tiny_path, training={"steps": 4, **training})
    assert losses(run_local(recipe)) == pytest.approx(as_it_is, rel=1e-5)


def test_bf16_stages_agree(tmp_path: Path, tiny_path: Path) -> None:
    found = []
    for zero_stage in (0, 1, 2, 3):
        training = {"steps": 4, "precision": "bf16", "zero_stage": zero_stage}
        found.append(losses(run_local(recipe_for(tmp_path / str(zero_stage), tiny_path, training=training))))
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=2e-3)


@pytest.mark.parametrize("zero_stage", [0, 2])
def test_packing_changes_nothing(zero_stage: int) -> None:
    """The same documents, packed into rows and one a row: one loss, one gradient norm."""
    encoder = Encoder(build_tokenizer(), 64)
    texts = [" ".join(WORDS[i : i + 2 + i % 3]) for i in range(8)]
    samples = [s for i, text in enumerate(texts) for s in encoder.document(Document(Source("toy", i), text))]
    packed = list(pack(samples, 64))
    assert len(packed) < len(samples)
    found = []
    for rows in (packed, [row_of([sample]) for sample in samples]):
        result = make("fp32", zero_stage).step([collate(rows, pad_token=0)], Pretrain())
        found.append((result.loss.value, result.loss.weight, result.grad_norm))
    assert found[0] == pytest.approx(found[1], rel=1e-5)
