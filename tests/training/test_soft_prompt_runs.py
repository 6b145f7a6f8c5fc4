"""Virtual tokens through the whole path: checked with the recipe, trained, asked, published, shown, exported, served."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest
import torch
from tests.training.runs import losses, recipe_for, run_local, write_comparisons, write_conversations

from cairn.adapters.attach import attach_saved
from cairn.cli.main import run as command
from cairn.config.load import with_overrides
from cairn.errors import AdapterError, UserError
from cairn.generation.generator import Generator
from cairn.generation.request import Request
from cairn.generation.scoring import score
from cairn.models.identity import base_sha256, tokenizer_sha256
from cairn.models.load import load_model, load_tokenizer
from cairn.serving.catalogue import Catalogue
from cairn.training.callbacks.samples import SAMPLES
from cairn.training.estimate import estimate
from cairn.training.fit import require_fit
from cairn.training.folder import publish
from cairn.training.lines import read_lines

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("group")]

PROMPT = {"name": "prompt_tuning", "num_virtual_tokens": 6}
PREFIX = {"name": "prefix_tuning", "num_virtual_tokens": 6}


@pytest.mark.parametrize(
    ("adapter", "keys", "reason"),
    [
        (PROMPT | {"num_virtual_tokens": 500}, {}, "set data.sequence_length to at most 12"),
        (PROMPT | {"num_virtual_tokens": 600}, {}, "600 virtual tokens leave no room in the model's 512 positions"),
        (PREFIX, {"training.gradient_checkpointing": True}, "does not go with training.gradient_checkpointing"),
        (PROMPT | {"prompt_tuning_init": "text"}, {}, "go together"),
        (PROMPT, {"storage.publish": "mine", "storage.merge": True}, "cannot be folded"),
        ({"name": "cpt", "cpt_token_ids": [1, 999]}, {}, "cpt_token_ids has 999, the vocabulary has 260"),
        ({"name": "cpt", "cpt_token_ids": [1, 2], "cpt_tokens_type_mask": [1]}, {}, "has 1 types for 2 tokens"),
        ({"name": "cpt", "cpt_tokens_type_mask": [4]}, {}, "leaves nothing to train"),
        ({"name": "cartridge", "num_virtual_tokens": 1}, {}, "num_frozen_tokens=1 leaves nothing"),
        ({"name": "p_tuning", "encoder_dropout": 0.1}, {}, "are of encoder_reparameterization_type=LSTM"),
    ],
)
def test_what_does_not_fit_is_said_before_the_run(adapter, keys, reason, tmp_path: Path, tiny_path: Path) -> None:
    recipe = with_overrides(recipe_for(tmp_path, tiny_path, adapter=adapter), keys)
    with pytest.raises(UserError, match=reason):
        require_fit(recipe)


def test_a_model_that_scores_has_none(tmp_path: Path, tiny_path: Path) -> None:
    recipe = recipe_for(tmp_path, tiny_path, "reward", adapter=PROMPT)
    with pytest.raises(UserError, match="the stage's model scores"):
        require_fit(recipe)


@pytest.mark.parametrize("adapter", [PROMPT, PREFIX], ids=["prompt", "prefix"])
def test_packed_and_alone_a_run_has_the_same_losses(adapter, tmp_path: Path, tiny_path: Path) -> None:
    """Every step takes all of the data, six samples in one row or in six."""
    data = {"train": [str(write_conversations(tmp_path / "few.jsonl", 6))], "sequence_length": 500}
    found = []
    for packing, rows in ((True, 1), (False, 6)):
        recipe = recipe_for(
            tmp_path / str(rows),
            tiny_path,
            "sft",
            adapter=adapter,
            data=data | {"packing": packing},
            training={"steps": 4, "global_batch": rows, "micro_batch": min(rows, 2)},
        )
        found.append(losses(run_local(recipe)))
    assert found[0] == pytest.approx(found[1], rel=2e-5)
    assert found[0][3] < found[0][0]


@pytest.mark.parametrize(
    "zero_stage", [0, pytest.param(2, marks=pytest.mark.full), pytest.param(3, marks=pytest.mark.full)]
)
@pytest.mark.parametrize("adapter", [PROMPT, PREFIX], ids=["prompt", "prefix"])
def test_dpo_begins_at_log_2_beside_a_copy_of_the_prompt(
    adapter, zero_stage: int, tmp_path: Path, tiny_path: Path
) -> None:
    held_out = write_comparisons(tmp_path / "held_out.jsonl", 4)
    recipe = recipe_for(
        tmp_path,
        tiny_path,
        "dpo",
        adapter=adapter,
        data={"validation": [str(held_out)]},
        training={"steps": 2, "zero_stage": zero_stage},
    )
    found = losses(run_local(recipe))
    assert found[0] == pytest.approx(math.log(2), abs=1e-5)
    assert found[1] != found[0]


@pytest.mark.full
@pytest.mark.parametrize("adapter", [PROMPT, PREFIX], ids=["prompt", "prefix"])
def test_before_a_quantised_base_a_run_resumes_bit_for_bit(adapter, tmp_path: Path, tiny_path: Path) -> None:
    recipe = recipe_for(
        tmp_path,
        tiny_path,
        model={"path": str(tiny_path), "quantization": "nf4"},
        adapter=adapter,
        training={"steps": 4, "checkpoint_every": 2, "precision": "bf16"},
    )
    require_fit(recipe)
    straight = losses(run_local(recipe))
    again = with_overrides(recipe, {"storage.run": "again"})
    run_local(again, stop_after=3)
    assert losses(run_local(again)) == straight
    assert len(set(straight)) == 4


def test_what_a_run_takes_is_told_without_weights(tmp_path: Path, tiny_path: Path) -> None:
    for adapter, trained in (
        (PROMPT, 6 * 64),
        ({"name": "cartridge", "text": "hill", "num_virtual_tokens": 3}, 2 * 128),
    ):
        recipe = recipe_for(tmp_path, tiny_path, "dpo", adapter=adapter)
        parts = {part.name: part.bytes for part in estimate(recipe, on_gpu=False)}
        assert parts["gradients"] == 4 * trained
        assert parts["reference model"] == parts["gradients"]


def test_trained_sampled_published_shown_exported_and_served(
    tmp_path: Path, tiny_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = str(tmp_path / "storage")
    recipe = recipe_for(
        tmp_path,
        tiny_path,
        "sft",
        adapter=PROMPT,
        generation={"max_tokens": 6, "temperature": 0.0},
        training={"steps": 3, "sample_every": 3, "sample_prompts": ["Which word follows?"]},
        storage={"path": storage, "publish": "mine"},
    )
    run_local(recipe)
    assert publish(recipe) == "mine@1"
    base, tokenizer = load_model(tiny_path, precision="fp32"), load_tokenizer(tiny_path)
    catalogue = Catalogue(
        base,
        base_name="base",
        base_path=str(tiny_path),
        storage=storage,
        base_sha256=base_sha256(tiny_path),
        tokenizer_sha256=tokenizer_sha256(tokenizer),
    )
    served = catalogue.resolve("mine")
    weights = asyncio.run(catalogue.weights(served))
    generator = Generator(base, tokenizer)
    generator.load("mine@1", weights)
    (line,) = read_lines(recipe.run_path / SAMPLES)
    asked = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Which word follows?"}], add_generation_prompt=True, return_dict=True
    )["input_ids"]
    mine, plain = generator.generate([Request(tuple(asked), adapter=name, max_tokens=6) for name in ("mine@1", None)])
    assert mine.text == line["answer"]
    assert mine.tokens != plain.tokens
    window = [(asked[:-1], asked[1:])]
    alone = attach_saved(load_model(tiny_path, precision="fp32"), served.path)
    assert generator.score(window, adapter="mine@1")[0] == pytest.approx(score(alone, window)[0], abs=1e-5)
    with pytest.raises(AdapterError, match="is no sum of matrices"):
        asyncio.run(catalogue.weights(catalogue.resolve("mine:0.5")))

    capsys.readouterr()
    assert command(["adapters", "show", "mine", "--storage", storage]) == 0
    shown = capsys.readouterr().out
    assert "virtual token" in shown
    assert len([row for row in shown.splitlines() if row[:1].isdigit()]) == 6
    assert command(["adapters", "verify", "mine", "--storage", storage]) == 0
    out = tmp_path / "out"
    assert command(["export", "mine", "--to", "peft", "--output", str(out), "--storage", storage]) == 0
    capsys.readouterr()
    assert command(["adapters", "merge", "mine", "--output", str(tmp_path / "merged"), "--storage", storage]) != 0
    assert "cannot be folded into the base's weights" in capsys.readouterr().err
    assert command(["adapters", "convert", "mine", "--publish", "other", "--storage", storage]) != 0
    assert torch.equal(alone.prompt(), attach_saved(load_model(tiny_path, precision="fp32"), out).prompt())
