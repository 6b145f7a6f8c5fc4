"""Texts during training are what the model of that step says, and change nothing of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.runs import losses, recipe_for, run_local, write_conversations, write_documents

from cairn.adapters.attach import attach_saved
from cairn.config.load import with_overrides
from cairn.config.recipe import Recipe
from cairn.errors import UserError
from cairn.generation.generator import Generator
from cairn.generation.request import Request
from cairn.models.load import load_model, load_tokenizer
from cairn.training.callbacks.samples import SAMPLES
from cairn.training.lines import read_lines

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("group")]

QUESTION = "Which word follows stone?"


def recipe_with(folder: Path, model: Path, stage: str, **training: Any) -> Recipe:
    """8 steps, a few tokens at the fourth and the last."""
    folder.mkdir(exist_ok=True)
    write = write_documents if stage == "pretrain" else write_conversations
    return recipe_for(
        folder,
        model,
        stage,
        data={"validation": [str(write(folder / "held_out.jsonl", 6))]},
        training={"steps": 8, "sample_every": 4, "checkpoint_every": 4, **training},
        generation={"max_tokens": 12},
    )


def answer_of(adapter: Path, base: Path, question: str) -> str:
    """What the finished result says, loaded as everybody loads it."""
    model, tokenizer = load_model(str(base), precision="fp32"), load_tokenizer(str(base))
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
    )
    tokens = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
    generator = Generator(attach_saved(model, adapter), tokenizer)
    return generator.generate([Request(tokens, max_tokens=12)])[0].text


def test_samples_are_what_the_result_says_and_cost_the_run_nothing(tmp_path: Path, tiny_path: Path) -> None:
    asked = {"sample_prompts": [QUESTION, "And what follows rain?"]}
    recipe = recipe_with(tmp_path, tiny_path, "sft", **asked)
    silent = with_overrides(recipe, {"training.sample_every": None, "storage.run": "silent"})
    run_local(recipe, stop_after=5)
    assert losses(run_local(recipe)) == losses(run_local(silent))
    lines = read_lines(recipe.run_path / SAMPLES)
    assert [(line["step"], line["prompt"]) for line in lines] == [
        (s, p) for s in (4, 8) for p in asked["sample_prompts"]
    ]
    last = [line["answer"] for line in lines if line["step"] == 8]
    assert last == [answer_of(recipe.run_path / "adapter", tiny_path, prompt) for prompt in asked["sample_prompts"]]
    assert any(last)
    assert not (silent.run_path / SAMPLES).exists()


@pytest.mark.parametrize(
    ("stage", "zero_stage", "method"), [("pretrain", 2, "full"), ("sft", 3, "lora"), ("dpo", 0, "lora")]
)
def test_held_out_prompts_at_every_stage(
    stage: str, zero_stage: int, method: str, tmp_path: Path, tiny_path: Path
) -> None:
    recipe = recipe_with(tmp_path, tiny_path, stage, zero_stage=zero_stage, steps=4)
    recipe = with_overrides(recipe, {"adapter.name": method})
    run_local(recipe)
    lines = read_lines(recipe.run_path / SAMPLES)
    assert [line["step"] for line in lines] == [4] * 4
    assert all(line["prompt"] for line in lines)


def test_nothing_to_ask_is_said_before_the_first_step(tmp_path: Path, tiny_path: Path) -> None:
    recipe = with_overrides(recipe_with(tmp_path, tiny_path, "sft"), {"data.validation": []})
    with pytest.raises(UserError, match="nothing to ask"):
        run_local(recipe)
    assert torch.is_grad_enabled()
