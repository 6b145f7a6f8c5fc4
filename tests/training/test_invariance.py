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
from cairn.plugins import STAGES
from cairn.records import Comparison, Document, Judgement, Source
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


WAYS: list[dict[str, object]] = [{"zero_stage": 2, "micro_batch": 4}, {"zero_stage": 3}, {"micro_batch": 1}]
ANSWERING = [name for name in STAGES.names() if STAGES.load(name).record in (Comparison, Judgement)]
EACH = [
    pytest.param(stage, way, marks=() if i % len(WAYS) == j else pytest.mark.full, id=f"{stage}-{way}")
    for i, stage in enumerate(ANSWERING)
    for j, way in enumerate(WAYS)
]
"""Every stage one way, every way with some stages; the whole cross with the whole matrix."""


@pytest.mark.parametrize(("stage", "way"), EACH)
def test_the_way_changes_nothing_for_any_stage_of_preference(
    stage: str, way: dict[str, object], tmp_path: Path, tiny_path: Path
) -> None:
    found = []
    for name, changes in (("plain", {}), ("other", way)):
        recipe = recipe_for(tmp_path / name, tiny_path, stage, training={"steps": 3, **changes})
        lines = run_local(recipe)
        found.append((losses(lines), [line["accuracy"] for line in lines], [line["grad_norm"] for line in lines]))
    for plain, other in zip(*found, strict=True):
        assert other == pytest.approx(plain, rel=1e-5)


@pytest.mark.parametrize("stage", ["dpo", "kto"])
def test_packing_changes_nothing_for_answers(stage: str, tmp_path: Path, tiny_path: Path) -> None:
    """All records in one global batch, packed into few rows or one a row: one first step."""
    found = []
    for packing in (True, False):
        recipe = recipe_for(
            tmp_path / str(packing),
            tiny_path,
            stage,
            data={"packing": packing, "sequence_length": 256, "limit": 8},
            stage={"name": stage, **({"loss": "ipo"} if stage == "dpo" else {})},
            adapter={"name": "full"},
            training={"steps": 1, "global_batch": 16 if stage == "kto" and not packing else 8, "micro_batch": 1},
        )
        found.append(run_local(recipe)[0])
    rows = [line["tokens"] for line in found]
    assert rows[0] > 0
    assert found[0]["loss"] == pytest.approx(found[1]["loss"], rel=1e-5)


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
