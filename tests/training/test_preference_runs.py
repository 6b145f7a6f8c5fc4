"""Runs of the preference stages, whole and in this process: references, what is computed ahead, what follows what."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiny import build_model, save_tiny
from tests.training.runs import losses, recipe_for, run_local

from cairn.config.load import with_overrides
from cairn.config.recipe import Recipe
from cairn.errors import AdapterError, CairnError, UserError
from cairn.models.load import load_model
from cairn.models.scores import scores_at
from cairn.training.folder import ADAPTER, publish
from cairn.training.start import pinned

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("group")]


def figure(lines: list[dict[str, Any]], name: str) -> list[float]:
    return [line[name] for line in lines]


def short(folder: Path, model: Path, stage: str, /, **sections: Any) -> Recipe:
    """Four steps."""
    training = {"steps": 4, **sections.pop("training", {})}
    return recipe_for(folder, model, stage, training=training, **sections)


@pytest.mark.parametrize("adapter", [{"name": "lora", "rank": 4, "dropout": 0.2}, {"name": "full"}])
def test_dpo_starts_at_ln_2_and_what_is_computed_ahead_changes_nothing(
    adapter: dict[str, Any], tmp_path: Path, tiny_path: Path
) -> None:
    found = []
    for ahead in (False, True):
        stage = {"name": "dpo", "precompute_reference": ahead}
        recipe = short(tmp_path / str(ahead), tiny_path, "dpo", stage=stage, adapter=adapter)
        found.append(run_local(recipe))
    live, ahead_of_time = found
    if adapter["name"] == "full":
        assert live[0]["loss"] == pytest.approx(math.log(2), rel=1e-5)
        assert abs(live[0]["margin"]) < 1e-5
    assert losses(ahead_of_time) == pytest.approx(losses(live), rel=1e-5)


def test_what_was_computed_ahead_is_kept_beside_the_rows_for_another_beta(tmp_path: Path, tiny_path: Path) -> None:
    stage = {"name": "dpo", "precompute_reference": True}
    first = short(tmp_path, tiny_path, "dpo", stage=stage)
    run_local(first)
    (kept,) = Path(os.environ["CAIRN_HOME"]).rglob("reference-*.npz")
    made = kept.stat().st_mtime_ns
    run_local(with_overrides(first, {"stage.beta": 0.5, "storage.run": "other"}))
    assert kept.stat().st_mtime_ns == made


class TestGoingOn:
    """`model.adapter`."""

    def sft(self, folder: Path, model: Path) -> str:
        recipe = short(folder, model, "sft", storage={"publish": "tuned"})
        run_local(recipe)
        reference = publish(recipe)
        assert reference == "tuned@1"
        return reference

    def going_on(self, folder: Path, model: Path, stage: str, /, **sections: Any) -> Recipe:
        recipe = short(folder, model, stage, adapter={"name": "lora"}, **sections)
        return with_overrides(recipe, {"model.adapter": "tuned"})

    def test_the_reference_is_the_policy_at_step_0_not_the_base(self, tmp_path: Path, tiny_path: Path) -> None:
        self.sft(tmp_path, tiny_path)
        recipe = pinned(self.going_on(tmp_path, tiny_path, "dpo", storage={"publish": "aligned"}))
        assert recipe.model.adapter == "tuned@1"
        lines = run_local(recipe)
        assert lines[0]["loss"] == pytest.approx(math.log(2), rel=1e-5)
        assert lines[0]["margin"] == pytest.approx(0.0, abs=1e-5)
        assert publish(recipe) == "aligned@1"
        card = json.loads((Path(recipe.storage.path) / "adapters" / "aligned" / "1" / "card.json").read_text())
        assert (card["parent"], card["stage"], card["rank"]) == ("tuned@1", "dpo", 4)

    def test_what_was_learnt_before_is_there(self, tmp_path: Path, tiny_path: Path) -> None:
        self.sft(tmp_path, tiny_path)
        before = json.loads((tmp_path / "storage/runs/sft-run/state.json").read_text())["metrics"]["loss"]
        lines = run_local(pinned(self.going_on(tmp_path, tiny_path, "sft", storage={"run": "again"})))
        fresh = run_local(short(tmp_path / "fresh", tiny_path, "sft"))
        assert lines[0]["loss"] < fresh[0]["loss"]
        assert lines[0]["loss"] == pytest.approx(before, rel=0.3)

    def test_a_reward_model_follows_and_is_followed_by_nothing_that_speaks(
        self, tmp_path: Path, tiny_path: Path
    ) -> None:
        self.sft(tmp_path, tiny_path)
        recipe = pinned(self.going_on(tmp_path, tiny_path, "reward", storage={"publish": "judge"}))
        run_local(recipe)
        assert publish(recipe) == "judge@1"
        wrong = with_overrides(self.going_on(tmp_path, tiny_path, "dpo"), {"model.adapter": "judge"})
        with pytest.raises(UserError, match="scores and does not speak"):
            pinned(wrong)

    def test_refusals_say_why(self, tmp_path: Path, tiny_path: Path) -> None:
        self.sft(tmp_path, tiny_path)
        recipe = self.going_on(tmp_path, tiny_path, "dpo")
        with pytest.raises(AdapterError, match="no adapter 'absent'"):
            pinned(with_overrides(recipe, {"model.adapter": "absent"}))
        with pytest.raises(UserError, match="full training cannot go on"):
            pinned(with_overrides(recipe, {"adapter.name": "full"}))
        other = save_tiny(tmp_path / "other", seed=3)
        with pytest.raises(UserError, match="another base model"):
            pinned(with_overrides(recipe, {"model.path": str(other)}))
        with pytest.raises(AdapterError, match="has rank 4 and alpha 8, and keeps its shape"):
            run_local(pinned(with_overrides(recipe, {"adapter.rank": 16, "storage.run": "wider"})))


@pytest.mark.parametrize("method", ["lora", "full"])
def test_a_reward_model_reloads_to_the_same_scores(method: str, tmp_path: Path, tiny_path: Path) -> None:
    from cairn.adapters.attach import attach_saved

    adapter = {"name": method} if method == "full" else {"name": method, "rank": 4}
    recipe = short(tmp_path, tiny_path, "reward", adapter=adapter)
    lines = run_local(recipe)
    assert {"accuracy", "margin", "brier", "calibration_error"} <= set(lines[-1])
    folder = recipe.run_path / ADAPTER
    inputs = {"input_ids": torch.arange(20)[None], "use_cache": False}
    places = torch.tensor([19])

    def scores() -> float:
        base = folder if method == "full" else tiny_path
        model = load_model(base, precision="fp32", head="score")
        with torch.no_grad():
            return float(scores_at(model if method == "full" else attach_saved(model, folder), inputs, places))

    assert scores() == scores() != 0.0
    opened = _opened_by_others(folder, tiny_path, method)
    with torch.no_grad():
        assert opened(input_ids=torch.arange(20)[None]).logits.item() == pytest.approx(scores(), rel=1e-5)


def _opened_by_others(folder: Path, base: Path, method: str) -> Any:
    from transformers import AutoModelForSequenceClassification

    if method == "full":
        return AutoModelForSequenceClassification.from_pretrained(folder).eval()
    from peft import PeftModel

    model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
    return PeftModel.from_pretrained(model, str(folder)).eval()


def test_another_reference_model_must_speak_the_same_vocabulary(tmp_path: Path, tiny_path: Path) -> None:
    other = save_tiny(tmp_path / "other", seed=5)
    recipe = short(tmp_path, tiny_path, "dpo", stage={"name": "dpo", "reference": str(other)})
    lines = run_local(recipe)
    assert lines[0]["loss"] != pytest.approx(math.log(2), rel=1e-3)
    foreign = tmp_path / "foreign"
    save_tiny(foreign)
    changed = json.loads((foreign / "tokenizer.json").read_text())
    changed["model"]["vocab"]["a"], changed["model"]["vocab"]["b"] = (
        changed["model"]["vocab"]["b"],
        changed["model"]["vocab"]["a"],
    )
    (foreign / "tokenizer.json").write_text(json.dumps(changed))
    with pytest.raises(CairnError, match="other tokens"):
        run_local(with_overrides(recipe, {"stage.reference": str(foreign), "storage.run": "foreign"}))


def test_the_model_is_what_it_was_after_its_reference_was_asked() -> None:
    from cairn.plugins import METHODS
    from cairn.training.reference import Switched

    lora = METHODS.load("lora")
    model = lora(lora.Config.parse({"rank": 4})).attach(build_model().requires_grad_(False)).train()
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    inputs = {"input_ids": torch.arange(12)[None]}
    before, trained = model(**inputs).logits, [n for n, p in model.named_parameters() if p.requires_grad]
    reference = Switched(model, adapter=None)(**inputs).logits
    assert not reference.requires_grad
    torch.testing.assert_close(reference, build_model()(**inputs).logits)
    torch.testing.assert_close(model(**inputs).logits, before)
    assert model.training
    assert [n for n, p in model.named_parameters() if p.requires_grad] == trained
