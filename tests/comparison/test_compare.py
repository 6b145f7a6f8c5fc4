"""Runs of every stage by one yardstick: each figure against its definition, and what cannot be compared is refused."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.comparison.conftest import STAGES
from tests.training.runs import write_comparisons, write_conversations, write_documents

from cairn.comparison.compare import Comparison, Entry, compare, ranked
from cairn.comparison.figures import FIGURES, interval
from cairn.comparison.runs import FinishedRun, find_runs
from cairn.comparison.yardstick import Settings
from cairn.data.documents import read_records
from cairn.data.prompts import prompt_tokens
from cairn.errors import DataError, UserError
from cairn.generation.scoring import score
from cairn.training.trackers.jsonl import read_metrics

pytestmark = pytest.mark.slow

ALL = (*STAGES, "sft-full")
SETTINGS = Settings(answers=4, max_tokens=12)


@pytest.fixture(scope="module")
def runs(storage: Path) -> list[FinishedRun]:
    return find_runs(ALL, storage=storage)


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_documents(tmp_path_factory.mktemp("text") / "text.jsonl", 6)


@pytest.fixture(scope="module")
def compared(runs: list[FinishedRun], documents: Path) -> Comparison:
    """Everything, by the pairs that the runs themselves evaluated."""
    settings = Settings(answers=4, max_tokens=12, files=(str(documents),))
    return compare(runs, settings)


def entry(found: Comparison, name: str) -> Entry:
    return next(one for one in found.runs if one.name == name)


def logps(run: FinishedRun, *, of_base: bool) -> list[tuple[float, float, int, int]]:
    """(lp_c, lp_r, n_c, n_r) of every pair, told token by token with the scoring that bits per byte use."""
    subject = run.base("fp32") if of_base else run.subject("fp32")
    model, tokenizer = subject.load(), run.subject("fp32").load_tokenizer()
    found = []
    for pair in read_records([run.recipe.data.validation[0]]):
        prompt = prompt_tokens(tokenizer, pair.prompt)
        windows = []
        for answer in (pair.chosen, pair.rejected):
            tokens = tuple(tokenizer(f"{answer[0].content}<|im_end|>", add_special_tokens=False)["input_ids"])
            windows.append(((*prompt, *tokens[:-1]), tokens))
        chosen, rejected = score(model, windows)
        found.append((-math.fsum(chosen), -math.fsum(rejected), len(chosen), len(rejected)))
    return found


@pytest.mark.parametrize("name", ["dpo", "sft-full"])
def test_figures_of_pairs_are_what_they_say(name: str, runs: list[FinishedRun], compared: Comparison) -> None:
    run = next(run for run in runs if run.name == name)
    own, base, figures = logps(run, of_base=False), logps(run, of_base=True), entry(compared, name).figures
    margins = [(c - bc) - (r - br) for (c, r, _, _), (bc, br, _, _) in zip(own, base, strict=True)]
    count = len(own)
    assert compared.yardstick["pairs"] == count == 12
    assert figures["accuracy"] == pytest.approx(sum(c / n > r / m for c, r, n, m in own) / count)
    assert figures["accuracy_summed"] == pytest.approx(sum(c > r for c, r, _, _ in own) / count)
    assert figures["accuracy_reward"] == pytest.approx(sum(margin > 0 for margin in margins) / count)
    assert figures["margin"] == pytest.approx(sum(margins) / count, rel=1e-4)
    assert compared.base.figures["accuracy"] == pytest.approx(sum(c / n > r / m for c, r, n, m in base) / count)


def test_the_base_is_no_distance_from_itself_and_runs_are(compared: Comparison) -> None:
    assert compared.base.figures["kl_per_token"] is None
    assert compared.base.figures["margin"] is None
    speaking = [one for one in compared.runs if one.stage != "reward"]
    for one in speaking:
        kl, per_answer, length = (one.figures[name] for name in ("kl_per_token", "kl_per_answer", "answer_tokens"))
        assert kl == pytest.approx(per_answer / length)
        assert kl != 0
    assert sum(one.figures["kl_per_token"] or 0 for one in speaking) > 0


def test_a_model_is_at_distance_0_from_its_twin(storage: Path, tmp_path: Path, runs: list[FinishedRun]) -> None:
    """A run whose LoRA does nothing: every figure against the base is 0, every other the base's own."""
    from safetensors.torch import load_file, save_file

    copy = tmp_path / "idle"
    shutil.copytree(storage / "runs" / "dpo", copy)
    path = copy / "adapter" / "adapter_model.safetensors"
    save_file({name: torch.zeros_like(tensor) for name, tensor in load_file(path).items()}, path)
    found = compare(find_runs([str(copy)], storage=storage), SETTINGS)
    idle, base = found.runs[0].figures, found.base.figures
    assert idle["kl_per_token"] == pytest.approx(0, abs=1e-6)
    assert idle["margin"] == pytest.approx(0, abs=1e-4)
    for name in ("accuracy", "accuracy_summed", "answer_tokens", "ended"):
        assert idle[name] == base[name], name
    assert found.runs[0].answers == found.base.answers


def test_a_reward_model_is_measured_by_its_scores(compared: Comparison, storage: Path) -> None:
    figures, told = entry(compared, "reward").figures, read_metrics(storage / "runs" / "reward")[-1]
    assert figures["accuracy"] == pytest.approx(told["held_out_accuracy"])
    assert figures["margin"] == pytest.approx(told["held_out_margin"], rel=1e-4)
    assert figures["accuracy_reward"] == figures["accuracy"]
    assert figures["kl_per_token"] is None
    assert figures["bpb"] is None


def test_dpos_own_evaluation_agrees(compared: Comparison, storage: Path) -> None:
    told = read_metrics(storage / "runs" / "dpo")[-1]
    assert entry(compared, "dpo").figures["margin"] == pytest.approx(told["held_out_margin"] / 0.1, rel=1e-3)
    assert entry(compared, "dpo").figures["accuracy_reward"] == pytest.approx(told["held_out_accuracy"])


def test_costs_are_the_logs(compared: Comparison, storage: Path) -> None:
    lines = read_metrics(storage / "runs" / "kto")
    figures = entry(compared, "kto").figures
    assert figures["steps"] == 6
    assert figures["tokens"] == pytest.approx(sum(line["tokens"] for line in lines))
    assert figures["seconds"] == pytest.approx(sum(line["step_seconds"] for line in lines))


def test_bits_per_byte_by_subset(compared: Comparison) -> None:
    for one in (compared.base, entry(compared, "sft"), entry(compared, "sft-full")):
        assert set(one.bits_per_byte) == {"Github", "ArXiv"}
        assert min(one.bits_per_byte.values()) <= one.figures["bpb"] <= max(one.bits_per_byte.values())


def test_the_best_first_and_those_without_the_figure_last(compared: Comparison) -> None:
    values = [one.figures["accuracy"] for one in compared.runs]
    assert values == sorted(values, reverse=True)
    by_kl = ranked(compared.runs, "kl_per_token")
    assert by_kl[-1].stage == "reward"
    known = [one.figures["kl_per_token"] for one in by_kl[:-1]]
    assert known == sorted(known)


def test_what_is_written_is_what_was_found(compared: Comparison, tmp_path: Path) -> None:
    plain = json.loads(compared.write(tmp_path).read_text())
    assert [run["name"] for run in plain["runs"]] == [one.name for one in compared.runs]
    assert set(plain["runs"][0]["figures"]) == set(FIGURES) == set(plain["meaning"])
    assert plain["yardstick"]["pair_files"][0].endswith("pairs.jsonl")
    assert len(plain["prompts"]) == len(plain["runs"][0]["answers"] or plain["runs"][1]["answers"]) == 4


def test_the_same_is_found_again(runs: list[FinishedRun], compared: Comparison, documents: Path) -> None:
    settings = Settings(answers=4, max_tokens=12, files=(str(documents),))
    again = compare(runs[:2], settings)
    for run in again.runs:
        assert run.figures == entry(compared, run.name).figures


def test_an_interval_holds_its_share() -> None:
    low, high = interval(0.5, 100)
    assert (low, high) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    assert 0 < interval(1.0, 10)[0] < interval(1.0, 10)[1] == pytest.approx(1.0)


class TestRefusals:
    """Before any weight is loaded."""

    def test_an_unknown_run(self, storage: Path) -> None:
        with pytest.raises(UserError, match="there is no run 'dpoo'") as caught:
            find_runs(["dpoo"], storage=storage)
        assert "did you mean 'dpo'" in str(caught.value)

    def test_an_unfinished_run(self, storage: Path, tmp_path: Path) -> None:
        shutil.copytree(storage / "runs" / "dpo", tmp_path / "dpo")
        state = tmp_path / "dpo" / "state.json"
        state.write_text(json.dumps({**json.loads(state.read_text()), "status": "stopped", "step": 3}))
        with pytest.raises(UserError, match="not finished: stopped at step 3 of 6"):
            find_runs([str(tmp_path / "dpo")], storage=storage)

    def test_runs_of_different_bases(self, storage: Path, tmp_path: Path) -> None:
        shutil.copytree(storage / "runs" / "kto", tmp_path / "kto")
        note = tmp_path / "kto" / "adapter" / "run.json"
        facts = json.loads(note.read_text())
        note.write_text(json.dumps({**facts, "base": {"path": "/other", "sha256": "0" * 64}}))
        with pytest.raises(UserError, match="another base model, /other"):
            find_runs(["dpo", str(tmp_path / "kto")], storage=storage)

    def test_no_pairs(self, runs: list[FinishedRun], tmp_path: Path) -> None:
        talk = write_conversations(tmp_path / "talk.jsonl", 3)
        with pytest.raises(DataError, match="no pair of answers to compare \\(no comparison: 3\\)"):
            compare(runs[:1], Settings(pairs=(str(talk),)))

    def test_runs_that_evaluated_different_data(self, storage: Path, tmp_path: Path) -> None:
        other = self._with_data(storage, tmp_path, validation=[str(write_comparisons(tmp_path / "other.jsonl", 4))])
        runs = find_runs(["dpo", str(other)], storage=storage)
        with pytest.raises(UserError, match="evaluated on different data") as caught:
            compare(runs, SETTINGS)
        assert "--pairs" in str(caught.value)
        found = compare(runs, Settings(pairs=(str(tmp_path / "other.jsonl"),), answers=2, max_tokens=4))
        assert found.yardstick["pairs"] == 4

    def test_different_templates(self, storage: Path, tmp_path: Path) -> None:
        shutil.copytree(storage / "runs" / "orpo", tmp_path / "orpo")
        (tmp_path / "orpo" / "adapter" / "chat_template.jinja").write_text("{{ messages }}")
        with pytest.raises(UserError, match="different chat templates"):
            compare(find_runs(["dpo", str(tmp_path / "orpo")], storage=storage), SETTINGS)

    def test_an_unknown_figure(self, runs: list[FinishedRun]) -> None:
        with pytest.raises(UserError, match="there is no figure 'acuracy'"):
            compare(runs, SETTINGS, by="acuracy")

    def test_an_unknown_precision(self, runs: list[FinishedRun]) -> None:
        with pytest.raises(UserError, match="there is no precision 'fp16'"):
            compare(runs, Settings(precision="fp16"))

    def test_what_is_no_run_at_all(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="there is no run 'x'") as caught:
            find_runs(["x"], storage=tmp_path)
        assert "train one first" in str(caught.value)

    def _with_data(self, storage: Path, tmp_path: Path, **keys: Any) -> Path:
        folder = tmp_path / "changed"
        shutil.copytree(storage / "runs" / "simpo", folder)
        recipe = json.loads((folder / "recipe.json").read_text())
        recipe["data"] |= keys
        (folder / "recipe.json").write_text(json.dumps(recipe))
        return folder


def test_held_out_records_of_the_training_files_are_a_yardstick_too(storage: Path, tmp_path: Path) -> None:
    folders = []
    for name in ("dpo", "kto"):
        folder = tmp_path / name
        shutil.copytree(storage / "runs" / name, folder)
        recipe = json.loads((folder / "recipe.json").read_text())
        recipe["data"] |= {"validation": [], "hold_out": 5}
        (folder / "recipe.json").write_text(json.dumps(recipe))
        folders.append(str(folder))
    found = compare(find_runs(folders, storage=storage), SETTINGS)
    assert found.yardstick["pairs"] == 5


def test_a_lora_on_a_whole_model_stands_on_that(storage: Path, tmp_path: Path) -> None:
    """`model.adapter` named a model that full training left."""
    folder = tmp_path / "after"
    shutil.copytree(storage / "runs" / "dpo", folder)
    recipe = json.loads((folder / "recipe.json").read_text())
    recipe["model"]["adapter"] = str(storage / "runs" / "sft-full")
    (folder / "recipe.json").write_text(json.dumps(recipe))
    (run,) = find_runs([str(folder)], storage=storage)
    assert run.subject("fp32").model == str(storage / "runs" / "sft-full" / "adapter")
    assert run.base("fp32").model == recipe["model"]["path"]
