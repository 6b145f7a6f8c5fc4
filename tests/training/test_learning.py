"""Every stage learns from its data within 200 steps, and nothing from labels that mean nothing.

One task for all: the right answer to a word is that word, a wrong one another word. It is asked of words that training
never shows. Shuffled labels are the control: what passes without a rule to learn is measured wrongly.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import pytest
from tests.tiny import save_tiny
from tests.training.runs import recipe_for, run_local

from cairn.config.recipe import Recipe
from cairn.data.prompts import prompt_tokens
from cairn.generation.generator import Generator
from cairn.generation.request import Request
from cairn.models.load import load_model, load_tokenizer
from cairn.plugins import STAGES
from cairn.records import Comparison, Judgement, Message
from cairn.training.folder import ADAPTER

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("group")]

TEMPLATE = (
    "{% for m in messages %}{{ ('?' if m['role'] == 'user' else '=') + m['content'] + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}={% endif %}"
)
TRAINED, HELD_OUT = 800, 40
SEEDS = (0, 1, 2)
PREFERENCE = [name for name in STAGES.names() if STAGES.load(name).record in (Comparison, Judgement)]
FULL, LORA = {"name": "full"}, {"name": "lora", "rank": 16}

Pair = tuple[str, str, str]
"""Prompt, right answer, wrong answer."""


@dataclass(frozen=True)
class Settings:
    """With what a stage learns the task."""

    adapter: dict[str, Any]
    learning_rate: float
    steps: int
    options: dict[str, Any]


USUAL = Settings(FULL, 5e-3, 50, {})
SETTINGS = {
    "sft": Settings(FULL, 5e-3, 80, {}),
    "reward": Settings(LORA, 1e-2, 60, {}),
    "dpo": Settings(LORA, 1e-2, 80, {}),
    "kto": Settings(FULL, 5e-3, 80, {"beta": 0.3}),
}
"""Where they are not the usual ones. A judgement says less than a comparison, so KTO takes longer."""


def cases(often: Sequence[str], stages: Sequence[str]) -> list[Any]:
    """(stage, seed); the stages `often` with one seed every time, all else with the whole matrix."""
    every = [(stage, seed) for stage in stages for seed in SEEDS]
    return [
        pytest.param(stage, seed, marks=() if stage in often and not seed else pytest.mark.full)
        for stage, seed in every
    ]


def task(seed: int, *, shuffled: bool) -> tuple[list[Pair], list[Pair]]:
    """Pairs to train on and pairs held out, of words that are all different; `shuffled`: either may be called right."""
    draw = random.Random(seed)
    words = draw.sample(["".join(letters) for letters in product(ascii_lowercase, repeat=3)], TRAINED + HELD_OUT)
    pairs: list[Pair] = [(word, word, other) for word, other in zip(words, words[1:] + words[:1], strict=True)]
    if shuffled:
        pairs = [(asked, *draw.sample(answers, 2)) for asked, *answers in pairs]
    return pairs[:TRAINED], pairs[TRAINED:]


def write(path: Path, lines: Sequence[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def learnt(folder: Path, stage: str, *, seed: int, **data: Any) -> tuple[Recipe, dict[str, Any]]:
    """The finished run of a fresh random model of one layer, and its last figures."""
    settings = SETTINGS.get(stage, USUAL)
    assert settings.steps <= 200
    model = save_tiny(folder / "model", chat_template=TEMPLATE, seed=seed, layers=1, num_key_value_heads=4)
    recipe = recipe_for(
        folder,
        model,
        stage,
        stage={"name": stage, **settings.options},
        adapter=settings.adapter,
        data=data,
        optimizer={"name": "adamw", "learning_rate": settings.learning_rate},
        schedule={"name": "cosine", "warmup_fraction": 0.1},
        training={
            "steps": settings.steps,
            "global_batch": 8,
            "micro_batch": 8,
            "seed": seed,
            "evaluate_documents": HELD_OUT,
            "trackers": ["jsonl"],
        },
    )
    return recipe, run_local(recipe)[-1]


def copied(folder: Path, seed: int, *, shuffled: bool) -> float:
    """The share of words never seen that a model repeats exactly, after sft on words repeated (or not: `shuffled`)."""
    train, held_out = task(seed, shuffled=False)
    answers = [right for _, right, _ in train]
    if shuffled:
        random.Random(seed).shuffle(answers)
    lines = [
        {"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]}
        for (asked, *_), answer in zip(train, answers, strict=True)
    ]
    recipe, _ = learnt(folder, "sft", seed=seed, train=[write(folder / "train.jsonl", lines)])
    result = recipe.run_path / ADAPTER
    tokenizer = load_tokenizer(result)
    generator = Generator(load_model(result, precision="fp32"), tokenizer)
    prompts = [prompt_tokens(tokenizer, [Message("user", asked)]) for asked, *_ in held_out]
    said = generator.generate([Request(prompt, max_tokens=8) for prompt in prompts])
    return sum(answer.text == right for answer, (_, right, _) in zip(said, held_out, strict=True)) / HELD_OUT


def accuracy(folder: Path, stage: str, seed: int, *, shuffled: bool) -> float:
    """By the stage's own reward, on pairs of prompts never seen."""
    files = [
        write(
            folder / f"{name}.jsonl", [dict(zip(("prompt", "chosen", "rejected"), pair, strict=True)) for pair in some]
        )
        for name, some in zip(("train", "held_out"), task(seed, shuffled=shuffled), strict=True)
    ]
    _, figures = learnt(folder, stage, seed=seed, train=files[:1], validation=files[1:])
    return float(figures["held_out_accuracy"])


@pytest.mark.parametrize(("stage", "seed"), cases(["sft"], ["sft"]))
def test_sft_learns_to_copy(stage: str, seed: int, tmp_path: Path) -> None:
    assert copied(tmp_path, seed, shuffled=False) >= 0.95


@pytest.mark.parametrize(("stage", "seed"), cases(["sft"], ["sft"]))
def test_sft_on_shuffled_answers_does_not(stage: str, seed: int, tmp_path: Path) -> None:
    assert copied(tmp_path, seed, shuffled=True) < 0.95


@pytest.mark.parametrize(("stage", "seed"), cases(PREFERENCE, PREFERENCE))
def test_what_is_preferred_is_learnt(stage: str, seed: int, tmp_path: Path) -> None:
    assert accuracy(tmp_path, stage, seed, shuffled=False) >= 0.9


@pytest.mark.parametrize(("stage", "seed"), cases(["simpo"], PREFERENCE))
def test_shuffled_preferences_are_not(stage: str, seed: int, tmp_path: Path) -> None:
    assert accuracy(tmp_path, stage, seed, shuffled=True) < 0.9
