"""Held-out bits per byte during training: the same number that scoring the trained model by itself gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.training.runs import recipe_for, run_local, write_comparisons, write_conversations, write_documents

from cairn.data.documents import read_documents
from cairn.errors import UserError
from cairn.evaluation.bits_per_byte import bits_per_byte, score_documents
from cairn.models.load import load_model, load_tokenizer
from cairn.plugins import CALLBACKS
from cairn.records import Document, Source
from cairn.training.folder import ADAPTER
from cairn.training.validation import choose

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("group")]


@pytest.mark.parametrize("zero_stage", [0, 3])
def test_documents_are_scored_as_evaluation_scores_them(zero_stage: int, tmp_path: Path, tiny_path: Path) -> None:
    held_out = write_documents(tmp_path / "held_out.jsonl", 7, offset=100)
    recipe = recipe_for(
        tmp_path,
        tiny_path,
        adapter={"name": "full"},
        data={"validation": [str(held_out)]},
        training={"steps": 4, "evaluate_every": 2, "evaluate_documents": 5, "log_every": 3, "zero_stage": zero_stage},
    )
    lines = run_local(recipe)
    assert [(line["step"], "held_out_bpb" in line) for line in lines] == [(2, True), (3, False), (4, True)]
    model = load_model(recipe.run_path / ADAPTER, precision="fp32")
    chosen = choose(read_documents([held_out]), 5)
    scores = list(score_documents(model, load_tokenizer(tiny_path), chosen, window=96))
    assert len(scores) == 5
    assert lines[-1]["held_out_bpb"] == pytest.approx(bits_per_byte(scores), rel=1e-5)
    assert lines[0]["held_out_bpb"] > lines[-1]["held_out_bpb"]


def test_conversations_are_scored_by_their_answers(tmp_path: Path, tiny_path: Path) -> None:
    held_out = write_conversations(tmp_path / "held_out.jsonl", 6)
    recipe = recipe_for(
        tmp_path, tiny_path, "sft", data={"validation": [str(held_out)]}, training={"steps": 4, "evaluate_every": 2}
    )
    lines = run_local(recipe)
    scored = [line for line in lines if "held_out_bpb" in line]
    assert [line["step"] for line in scored] == [2, 4]
    assert scored[1]["held_out_loss"] < scored[0]["held_out_loss"]
    # One byte is one token here, the end of turn comes on top: a little more nats than bytes' worth.
    ratio = scored[0]["held_out_bpb"] * 0.6931471805599453 / scored[0]["held_out_loss"]
    assert 1.0 < ratio < 1.5


def test_subsets_take_turns() -> None:
    documents = [Document(Source("x", i), f"{i}", "a" if i < 8 else "b") for i in range(10)]
    assert [document.source.line for document in choose(documents, 5)] == [0, 8, 1, 9, 2]
    assert choose(documents[:2], 5) == documents[:2]


@pytest.mark.parametrize("name", CALLBACKS.names())
def test_every_callback_keeps_the_contract(name: str) -> None:
    callback = CALLBACKS.load(name)
    assert callback.__doc__
    assert callback.name == name
    assert callback.Config.parse(callback.Config().model_dump(mode="json")) == callback.Config()


@pytest.mark.parametrize("stage", ["dpo", "kto", "reward"])
def test_answers_are_measured_by_the_stage_s_own_figures(stage: str, tmp_path: Path, tiny_path: Path) -> None:
    held_out = write_comparisons(tmp_path / "held_out.jsonl", 6)
    recipe = recipe_for(
        tmp_path, tiny_path, stage, data={"validation": [str(held_out)]}, training={"steps": 4, "evaluate_every": 2}
    )
    scored = [line for line in run_local(recipe) if "held_out_loss" in line]
    assert [line["step"] for line in scored] == [2, 4]
    assert all(0 <= line["held_out_accuracy"] <= 1 for line in scored)
    assert "held_out_bpb" not in scored[0]


def test_documents_beside_comparisons_stay_bits_per_byte(tmp_path: Path, tiny_path: Path) -> None:
    held_out = write_documents(tmp_path / "held_out.jsonl", 4)
    validation = {"validation": [str(held_out)]}
    scored = run_local(recipe_for(tmp_path / "dpo", tiny_path, "dpo", data=validation, training={"steps": 1}))
    assert scored[-1]["held_out_bpb"] > 0
    with pytest.raises(UserError, match="gives scores, not bits per byte"):
        run_local(recipe_for(tmp_path / "reward", tiny_path, "reward", data=validation, training={"steps": 1}))
