"""Routing: features without padding, two classifiers that learn what there is to learn, a threshold, files."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.tiny import build_model

from cairn.adapters.routing.classifier import KINDS
from cairn.adapters.routing.evaluation import evaluate_router
from cairn.adapters.routing.features import MOST_TOKENS, prompt_features
from cairn.adapters.routing.router import Router, check_adapters, load_router, threshold_for
from cairn.errors import AdapterError, UserError

pytestmark = pytest.mark.unit

ALPHABETS = ("abcde", "01234", "ABCDE")
NAMES = ("words@1", "numbers@3", "shouts@2")
FOREIGN = "{}[]()<>!?;:#%&*+=~^|"


def prompts(alphabet: str, count: int, *, seed: int) -> list[tuple[int, ...]]:
    """Random texts of one alphabet, as bytes; a token is a byte."""
    source = random.Random(f"{alphabet}{seed}")
    return [tuple("".join(source.choices(alphabet, k=source.randint(20, 60))).encode()) for _ in range(count)]


@pytest.fixture(scope="module")
def model() -> Any:
    return build_model()


@pytest.fixture(scope="module")
def sets(model: Any) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Features and labels of three kinds of prompts, twice, and of prompts of none."""

    def of(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        found = [prompt for alphabet in ALPHABETS for prompt in prompts(alphabet, count, seed=seed)]
        return prompt_features(model, found), torch.arange(len(ALPHABETS)).repeat_interleave(count)

    foreign = prompt_features(model, prompts(FOREIGN, 60, seed=1))
    return {"learned": of(40, 1), "calibrated": of(30, 2), "evaluated": of(30, 3), "foreign": (foreign, foreign)}


def trained(kind: str, sets: Any, *, coverage: float = 0.95) -> Router:
    classifier = KINDS[kind].fit(*sets["learned"], classes=len(NAMES))
    confidences = classifier.confidence(classifier.scores(sets["calibrated"][0]))
    return Router(NAMES, classifier, threshold_for(confidences, coverage=coverage))


def test_a_feature_is_the_mean_of_the_last_hidden_states_of_length_one(model: Any) -> None:
    prompt = prompts("abc", 1, seed=1)[0]
    hidden = model.model(torch.tensor([prompt])).last_hidden_state[0].detach().mean(0)
    assert torch.allclose(prompt_features(model, [prompt])[0], hidden / hidden.norm(), atol=1e-6)


def test_neither_padding_nor_neighbours_nor_order_change_a_feature(model: Any) -> None:
    found = [prompts(alphabet, 5, seed=2)[k] for k in range(5) for alphabet in ALPHABETS]
    together = prompt_features(model, found)
    assert torch.equal(together, prompt_features(model, found))
    for batch_tokens in (1, 100):
        assert torch.allclose(together, prompt_features(model, found, batch_tokens=batch_tokens), atol=1e-6)
    assert torch.allclose(together.flip(0), prompt_features(model, found[::-1]), atol=1e-6)


def test_of_a_long_prompt_the_end_counts(model: Any) -> None:
    end = tuple(range(65, 90)) * 30
    kept = end[-MOST_TOKENS:]
    assert torch.equal(prompt_features(model, [(1, 2, 3, *end)]), prompt_features(model, [kept]))
    with pytest.raises(UserError, match="without tokens"):
        prompt_features(model, [kept, ()])


@pytest.mark.parametrize("kind", KINDS)
def test_a_router_learns_what_tells_prompts_apart(kind: str, sets: Any) -> None:
    router = trained(kind, sets)
    found = evaluate_router(router, sets["evaluated"][0], sets["evaluated"][1].tolist())
    assert found.all.shares["accuracy"] == 1.0
    assert found.all.shares["routed_accuracy"] == 1.0
    assert 0 < found.all.routed <= found.all.prompts == 90
    assert (found.all.shares["abstention"] or 0) < 0.25
    assert [sum(row) for row in found.confusion] == [30, 30, 30]
    plain = found.plain()
    assert plain["adapters"]["numbers@3"]["accuracy"] == 1.0
    assert plain["confusion"]["words@1"]["words@1"] + plain["confusion"]["words@1"]["base"] == 30
    json.dumps(plain)


@pytest.mark.parametrize("kind", KINDS)
def test_of_prompts_dealt_out_at_random_nothing_is_learned(kind: str, sets: Any) -> None:
    """At chance on those kept back: a third, within four standard deviations of 900 draws."""
    learned, evaluated = sets["learned"][0], sets["evaluated"][0]
    right = 0
    for seed in range(10):
        dealt = torch.randint(3, (len(learned) + len(evaluated),), generator=torch.Generator().manual_seed(seed))
        classifier = KINDS[kind].fit(learned, dealt[: len(learned)], classes=len(NAMES))
        found = evaluate_router(Router(NAMES, classifier, 0.0), evaluated, dealt[len(learned) :].tolist())
        assert found.all.routed == found.all.prompts == 90
        right += found.all.right
    assert abs(right / 900 - 1 / 3) < 4 * (2 / 9 / 900) ** 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_of_no_adapter_go_to_the_base(kind: str, sets: Any) -> None:
    router = trained(kind, sets, coverage=0.9)
    away = sum(choice is None for choice in router.choose(sets["foreign"][0]))
    ours = sum(choice is None for choice in router.choose(sets["evaluated"][0]))
    assert away >= 55  # of 60
    assert ours <= 20  # of 90


def test_a_threshold_covers_what_it_should() -> None:
    confidences = torch.tensor([0.9, 0.1, 0.5, 0.7, 0.3])
    for coverage, routed in ((1.0, 5), (0.8, 4), (0.61, 4), (0.6, 3), (0.01, 1)):
        assert int((confidences >= threshold_for(confidences, coverage=coverage)).sum()) == routed
    for coverage in (0.0, 1.1):
        with pytest.raises(UserError, match="coverage"):
            threshold_for(confidences, coverage=coverage)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("template", [None, "{{ messages }}"])
def test_what_is_saved_is_what_is_loaded(kind: str, template: str | None, sets: Any, tmp_path: Path) -> None:
    fitted = trained(kind, sets)
    router = Router(fitted.adapters, fitted.classifier, fitted.threshold, template)
    router.save(tmp_path)
    loaded = load_router(tmp_path)
    assert (loaded.adapters, loaded.threshold, loaded.template) == (router.adapters, router.threshold, template)
    features = torch.cat([sets["evaluated"][0], sets["foreign"][0]])
    assert torch.equal(loaded.classifier.scores(features), router.classifier.scores(features))
    assert loaded.choose(features) == router.choose(features)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": "forest"}, "none of centroid, linear"),
        ({"threshold": "high"}, "threshold"),
        ({"adapters": ["words@1"]}, "adapters"),
        ({"adapters": ["words@1", "numbers@3"]}, "shapes"),
        ({"code": "import os"}, "code"),
    ],
)
def test_settings_that_do_not_fit_are_refused(change: Any, reason: str, sets: Any, tmp_path: Path) -> None:
    trained("centroid", sets).save(tmp_path)
    settings = json.loads((tmp_path / "router.json").read_text())
    (tmp_path / "router.json").write_text(json.dumps({**settings, **change}))
    with pytest.raises(AdapterError, match=reason):
        load_router(tmp_path)


def test_tensors_that_do_not_fit_are_refused(sets: Any, tmp_path: Path) -> None:
    trained("linear", sets).save(tmp_path)
    good = load_file(tmp_path / "router.safetensors")
    for change, reason in (
        ({"bias": good["bias"][:2]}, "shapes"),
        ({"more": good["bias"].clone()}, "shapes"),
        ({"center": good["center"][:-1]}, "shapes"),
        ({"bias": good["bias"].double()}, "not fp32"),
        ({"bias": good["bias"] / 0}, "not finite"),
    ):
        save_file({**good, **change}, tmp_path / "router.safetensors")
        with pytest.raises(AdapterError, match=reason):
            load_router(tmp_path)
    (tmp_path / "router.safetensors").write_bytes(b"\x80\x04pickle")
    with pytest.raises(AdapterError, match="cannot be read"):
        load_router(tmp_path)
    (tmp_path / "router.json").unlink()
    with pytest.raises(AdapterError, match="cannot be read"):
        load_router(tmp_path)


@pytest.mark.parametrize("references", [[], ["a@1"], ["a@1", "a@1"], ["a@1", "b@1", "a@1"]])
def test_there_must_be_something_to_choose_among(references: list[str]) -> None:
    with pytest.raises(UserError, match="different adapters"):
        check_adapters(references)
