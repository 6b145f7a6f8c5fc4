"""Whole runs with adapter methods beside plain LoRA: stopped, resumed, gone on from, and evaluated as they were trained."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiny import build_tokenizer
from tests.training.runs import losses, recipe_for, run_local, write_comparisons, write_documents

from cairn.adapters.attach import attach_saved
from cairn.adapters.proof import small_values
from cairn.adapters.specimens import SMALL
from cairn.config.load import with_overrides
from cairn.config.recipe import Recipe
from cairn.data.documents import read_documents
from cairn.errors import UserError
from cairn.evaluation.bits_per_byte import score_documents, totals
from cairn.evaluation.subject import Subject
from cairn.models.load import load_model
from cairn.plugins import METHODS
from cairn.training.fit import require_fit
from cairn.training.folder import ADAPTER

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("group")]

OTHERS = {
    "dora": {"name": "lora", "rank": 4, "use_dora": True},
    "pissa": {"name": "lora", "rank": 4, "init": "pissa"},
    **{init: {"name": "lora", "rank": 4, "init": init, "init_rows": 8} for init in ("eva", "corda", "lora_ga", "mica")},
    "lora-fa": {"name": "lora", "rank": 4, "freeze_a": True},
    "eva with a fixed": {"name": "lora", "rank": 4, "init": "eva", "freeze_a": True},
    "lora in one layer, with a norm": {"name": "lora", "rank": 4, "layers": [1], "modules_to_save": ["norm"]},
}
DAILY = ("oft", "ia3", "freeze", "dora", "pissa", "eva", "lora_ga")
REFUSED = [name for name in METHODS.names() if METHODS.load(name).refused]
SETTINGS: dict[str, dict[str, Any]] = {
    **{
        name: {"name": name, **small_values(name)} for name in METHODS.names() if name not in ("lora", "full", *REFUSED)
    },
    **OTHERS,
}


@pytest.mark.parametrize("case", [pytest.param(c, marks=() if c in DAILY else pytest.mark.full) for c in SETTINGS])
def test_stopped_and_resumed_a_run_is_the_same_and_its_result_is_what_was_trained(
    case: str, tmp_path: Path, tiny_path: Path
) -> None:
    held_out = write_documents(tmp_path / "held_out.jsonl", 4, offset=50)
    recipe = recipe_for(
        tmp_path,
        tiny_path,
        adapter=SETTINGS[case],
        data={"validation": [str(held_out)]},
        training={"steps": 6, "checkpoint_every": 2, "evaluate_documents": 4},
    )
    require_fit(recipe)
    straight = run_local(recipe)
    again = with_overrides(recipe, {"storage.run": "again"})
    run_local(again, stop_after=3)
    assert losses(run_local(again)) == losses(straight)
    assert_scores(again, tiny_path, straight[-1]["held_out_bpb"])


@pytest.mark.full
def test_loftq_beside_a_quantised_base_resumes_bit_for_bit(tmp_path: Path, tiny_path: Path) -> None:
    recipe = recipe_for(
        tmp_path,
        tiny_path,
        model={"path": str(tiny_path), "quantization": "nf4"},
        adapter={"name": "lora", "rank": 4, "init": "loftq"},
        training={"steps": 4, "checkpoint_every": 2},
    )
    require_fit(recipe)
    straight = run_local(recipe)
    again = with_overrides(recipe, {"storage.run": "again"})
    run_local(again, stop_after=3)
    assert losses(run_local(again)) == losses(straight)
    plain = run_local(with_overrides(recipe, {"storage.run": "zero", "adapter.init": "zero", "training.steps": 1}))
    assert plain[0]["loss"] != straight[0]["loss"]
    with pytest.raises(UserError, match=r"model\.quantization=nf4 forbids"):
        require_fit(with_overrides(recipe, {"adapter.init": "corda"}))


@pytest.mark.full
def test_corda_keeps_what_documents_say(tmp_path: Path, tiny_path: Path) -> None:
    known = write_documents(tmp_path / "known.jsonl", 12, offset=200)
    adapter = {"name": "lora", "rank": 4, "init": "corda_kpm", "init_rows": 8, "init_documents": [str(known)]}
    recipe = recipe_for(tmp_path, tiny_path, adapter=adapter, training={"steps": 4, "checkpoint_every": 2})
    require_fit(recipe)
    straight = run_local(recipe)
    again = with_overrides(recipe, {"storage.run": "again"})
    run_local(again, stop_after=3)
    assert losses(run_local(again)) == losses(straight)
    others = write_documents(tmp_path / "others.jsonl", 12, offset=900)
    changed = with_overrides(recipe, {"storage.run": "others", "adapter.init_documents": [str(others)]})
    assert losses(run_local(changed))[1:] != losses(straight)[1:]
    with pytest.raises(UserError, match="go together"):
        require_fit(with_overrides(recipe, {"adapter.init_documents": []}))


@pytest.mark.full
def test_a_stream_that_has_gone_on_is_not_needed_to_begin_again(tmp_path: Path, tiny_path: Path) -> None:
    adapter = {"name": "lora", "rank": 4, "init": "lora_ga", "init_rows": 8}
    training = {"steps": 6, "checkpoint_every": 2}
    recipe = recipe_for(tmp_path, tiny_path, adapter=adapter, data={"streaming": True}, training=training)
    straight = run_local(recipe)
    again = with_overrides(recipe, {"storage.run": "again"})
    run_local(again, stop_after=5)
    assert losses(run_local(again)) == losses(straight)


@pytest.mark.parametrize("zero_stage", [0, pytest.param(2, marks=pytest.mark.full)])
def test_a_mixtures_experts_and_new_tokens_train_in_a_run(zero_stage: int, tmp_path: Path) -> None:
    mixture = save_mixture(tmp_path / "mixture")
    held_out = write_documents(tmp_path / "held_out.jsonl", 4, offset=50)
    recipe = recipe_for(
        tmp_path,
        mixture,
        adapter={"name": "lora", "rank": 2, "parameters": "experts", "tokens": [65, 66]},
        data={"validation": [str(held_out)]},
        training={"steps": 4, "checkpoint_every": 2, "evaluate_documents": 4, "zero_stage": zero_stage},
    )
    require_fit(recipe)
    straight = run_local(recipe)
    again = with_overrides(recipe, {"storage.run": "again"})
    run_local(again, stop_after=3)
    assert losses(run_local(again)) == losses(straight)
    assert_scores(again, mixture, straight[-1]["held_out_bpb"])
    with pytest.raises(UserError, match="which ZeRO 3 divides"):
        require_fit(with_overrides(recipe, {"training.zero_stage": 3}))


def save_mixture(folder: Path) -> Path:
    """A tiny mixture of experts in a folder, with the tokenizer of the other tiny models."""
    from transformers import MixtralConfig, MixtralForCausalLM

    tokenizer = build_tokenizer()
    config = MixtralConfig(
        **{**SMALL, "vocab_size": 260, "max_position_embeddings": 128}, num_local_experts=4, num_experts_per_tok=2
    )
    torch.manual_seed(0)
    MixtralForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def assert_scores(recipe: Recipe, base: Path, wanted: float) -> None:
    """The run's result, opened on the untouched base, scores the held-out text as the run did at its end; the base
    alone does not."""
    documents = list(read_documents([str(recipe.data.validation[0])]))
    found = []
    for adapter in (str(recipe.run_path / ADAPTER), None):
        subject = Subject(str(base), adapter)
        scores = score_documents(
            subject.load(), subject.load_tokenizer(), documents, window=recipe.data.sequence_length
        )
        found.append(totals(scores).bits_per_byte)
    assert found[0] == pytest.approx(wanted, rel=1e-4 * abs(wanted - found[1]) / wanted + 1e-7)
    assert abs(wanted - found[1]) > 1e-6


@pytest.mark.parametrize(
    "case",
    ["oft", "lora_ga", *(pytest.param(case, marks=pytest.mark.full) for case in ("pissa", "vblora", "corda", "eva"))],
)
def test_dpo_starts_at_log_2_whatever_the_adapter_begins_with(case: str, tmp_path: Path, tiny_path: Path) -> None:
    held_out = write_comparisons(tmp_path / "held_out.jsonl", 4)
    recipe = recipe_for(
        tmp_path,
        tiny_path,
        "dpo",
        adapter=SETTINGS[case],
        data={"validation": [str(held_out)]},
        training={"steps": 2},
    )
    assert run_local(recipe)[0]["loss"] == pytest.approx(math.log(2), abs=1e-5)


def test_a_run_goes_on_from_another_methods_result(tmp_path: Path, tiny_path: Path) -> None:
    first = recipe_for(tmp_path / "first", tiny_path, adapter=SETTINGS["oft"], training={"steps": 3})
    run_local(first)
    adapter = str(first.run_path / ADAPTER)
    second = recipe_for(
        tmp_path / "second",
        tiny_path,
        model={"path": str(tiny_path), "adapter": adapter},
        adapter={"name": "oft"},
        training={"steps": 1},
    )
    start = run_local(second)[0]["loss"]
    model = attach_saved(load_model(tiny_path, precision="fp32"), adapter)
    assert model.peft_config["default"].oft_block_size == 16
    assert start < run_local(with_overrides(first, {"storage.run": "anew", "training.steps": 1}))[0]["loss"]
    with pytest.raises(UserError, match="was made by the method 'oft'"):
        run_local(with_overrides(second, {"adapter": {"name": "ia3"}, "storage.run": "other"}))


@pytest.mark.parametrize("name", REFUSED)
def test_a_method_that_is_refused_says_why(name: str, tmp_path: Path, tiny_path: Path) -> None:
    recipe = recipe_for(tmp_path, tiny_path, adapter={"name": name})
    with pytest.raises(UserError, match=METHODS.load(name).refused[:40]):
        require_fit(recipe)


def test_all_that_does_not_fit_is_said_at_once_with_a_table_of_what_is_reached(tmp_path: Path, tiny_path: Path) -> None:
    recipe = recipe_for(
        tmp_path,
        tiny_path,
        adapter={
            "name": "lora",
            "rank": 128,
            "targets": ["q_proj"],
            "rank_pattern": {"v_proj": 2},
            "modules_to_save": ["q_proj", "nope", "embed_tokens"],
        },
    )
    with pytest.raises(UserError) as refused:
        require_fit(recipe)
    for reason in (
        "adapter.rank=128 is above the smaller side",
        "adapter.rank_pattern names 'v_proj'",
        "'q_proj' is in adapter.targets and in adapter.modules_to_save",
        "names 'nope', which is no module",
        "tied to the model's other end",
        "attention  2 of 2",
    ):
        assert reason in str(refused.value), reason
    for adapter, reason in (
        ({"name": "lora", "targets": ["q_prj", "v_prj"]}, "(?s)did you mean 'q_proj'.*did you mean 'v_proj'"),
        ({"name": "lora", "layers": [0, 99]}, "there is no layer 99"),
        ({"name": "lora", "init": "loftq"}, "begins in what quantisation took away"),
        ({"name": "lora", "init": "eva", "rank_pattern": {"q_proj": 2}}, "goes with no patterns"),
        ({"name": "lora", "init": "lora_ga", "rank": 24}, "needs twice that on the smaller side"),
        ({"name": "oft", "block_size": 48}, "block_size=48 does not divide"),
        ({"name": "trainable_tokens", "tokens": [7, 999999]}, "adapter.tokens has 999999"),
        ({"name": "freeze", "layers": 9}, "adapter.layers=9 of a model with 2 layers"),
    ):
        with pytest.raises(UserError, match=reason):
            require_fit(with_overrides(recipe, {"adapter": adapter}))
