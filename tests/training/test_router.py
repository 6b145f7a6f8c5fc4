"""A router from published adapters: their own training data, figures of prompts kept back, a version of its own kind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from tests.generation.lora import save_reward
from tests.tiny import save_tiny
from tests.training.routed import KINDS, publish_trained, texts, write_questions

from cairn.adapters.routing.features import MOST_TOKENS, prompt_features
from cairn.adapters.routing.router import load_router
from cairn.errors import AdapterError, UserError
from cairn.models.identity import base_sha256, tokenizer_sha256
from cairn.models.load import load_model, load_tokenizer
from cairn.store.card import Base, Facts
from cairn.store.routers import Routers
from cairn.store.store import Store
from cairn.training.router import Settings, train_router
from cairn.training.routing_prompts import training_prompts

pytestmark = pytest.mark.unit


@pytest.fixture
def storage(tmp_path: Path, tiny_path: Path) -> Path:
    publish_trained(tmp_path / "storage", tiny_path, tmp_path)
    return tmp_path / "storage"


@pytest.mark.parametrize("kind", ["centroid", "linear"])
def test_a_router_of_two_adapters(storage: Path, tiny_path: Path, kind: str) -> None:
    trained = train_router(("words", "numbers@1"), storage, Settings(kind=kind))  # type: ignore[arg-type]
    figures = trained.plain()
    assert (figures["kind"], figures["prompts"], figures["accuracy"]) == (kind, 24, 1.0)
    assert {name: one["prompts"] for name, one in figures["adapters"].items()} == {"words@1": 12, "numbers@1": 12}
    published = trained.publish("front", storage)
    card = published.card
    assert (published.reference, card.method, card.parents) == ("front@1", "router", ("words@1", "numbers@1"))
    assert card.base.sha256 == base_sha256(tiny_path)
    assert card.tokenizer_sha256 == tokenizer_sha256(load_tokenizer(tiny_path))
    assert card.metrics["accuracy"] == 1.0
    assert json.loads((published.path / "evaluation.json").read_text()) == json.loads(json.dumps(figures))
    assert set(card.files) == {"router.json", "router.safetensors", "chat_template.jinja", "evaluation.json"}
    router, model, tokenizer = load_router(published.path), load_model(tiny_path, precision="fp32"), None
    tokenizer = load_tokenizer(tiny_path)
    assert router.template == tokenizer.chat_template
    for name in KINDS:
        asked = [
            tokenizer.apply_chat_template(
                [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=False
            )
            for text in texts(name, 20, seed=9)
        ]
        chosen = router.choose(prompt_features(model, asked))
        assert chosen.count(f"{name}@1") >= 15
        assert set(chosen) <= {f"{name}@1", None}


def test_the_same_again_is_the_same(storage: Path) -> None:
    first, second = (train_router(("words", "numbers"), storage, Settings(prompts=30)) for _ in range(2))
    assert first.plain() == second.plain()
    for name, tensor in first.router.classifier.tensors.items():
        assert torch.equal(tensor, second.router.classifier.tensors[name])


def test_a_router_is_no_adapter_and_no_adapter_a_router(storage: Path) -> None:
    train_router(("words", "numbers"), storage, Settings(threshold=0.1)).publish("front", storage)
    adapters, routers = Store(storage / "adapters"), Routers(storage)
    assert [adapter.reference for adapter in adapters.list()] == ["numbers@1", "words@1"]
    assert [router.reference for router in routers.list()] == ["front@1"]
    with pytest.raises(AdapterError, match="no adapter 'front'"):
        adapters.resolve("front")
    with pytest.raises(AdapterError, match="no router 'words'"):
        routers.resolve("words")
    with pytest.raises(AdapterError, match="'words' is an adapter"):
        routers.check_free("words")
    routers.promote("front", 1, "prod")
    assert routers.resolve("front@prod").reference == "front@1"


def test_the_prompt_is_what_stands_before_the_last_answer(storage: Path, tiny_path: Path, tmp_path: Path) -> None:
    tokenizer, adapter = load_tokenizer(tiny_path), Store(storage / "adapters").resolve("words")
    talk = [{"role": role, "content": f"{role} 0"} for role in ("user", "assistant", "user", "assistant")]
    long = "word " * (2 * MOST_TOKENS)
    rows = [
        *({"messages": [*talk, {"role": "user", "content": f"n{i}"}, talk[1]]} for i in range(12)),
        {"messages": [{"role": "assistant", "content": "Nobody asked."}]},
        "no row",
    ]
    documents = [{"text": long + str(i), "meta": {}} for i in range(12)]
    documents = [{"text": f"{i} {long}", "meta": {"pile_set_name": "Github"}} for i in range(12)]
    for name, written in (("talk", rows), ("text", documents)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in written))
    found = training_prompts(adapter, tokenizer, most=50, files=[str(tmp_path / "talk.jsonl")])
    assert tuple(map(len, (found.learned, found.calibrated, found.evaluated))) == (8, 2, 2)
    assert sum(found.left_out.values()) == 2
    wanted = {
        tuple(
            tokenizer.apply_chat_template(
                [*talk, {"role": "user", "content": f"n{i}"}], add_generation_prompt=True, return_dict=False
            )
        )
        for i in range(12)
    }
    assert {*found.learned, *found.calibrated, *found.evaluated} == wanted
    text = training_prompts(adapter, tokenizer, most=50, files=[str(tmp_path / "text.jsonl")])
    assert set(text.learned) < {tuple(tokenizer(f"{i} {long}")["input_ids"][:MOST_TOKENS]) for i in range(12)}


def test_repeated_prompts_count_once(storage: Path, tiny_path: Path, tmp_path: Path) -> None:
    adapter, tokenizer = Store(storage / "adapters").resolve("words"), load_tokenizer(tiny_path)
    file = write_questions(tmp_path / "again.jsonl", "words", 12)
    file.write_text(file.read_text() * 3)
    found = training_prompts(adapter, tokenizer, most=50, files=[str(file)])
    parts = (found.learned, found.calibrated, found.evaluated)
    assert sum(map(len, parts)) == len({prompt for part in parts for prompt in part}) == 12


def test_where_the_data_are_gone_files_may_be_named(storage: Path, tmp_path: Path) -> None:
    (tmp_path / "words.jsonl").rename(tmp_path / "moved.jsonl")
    with pytest.raises(AdapterError, match="training data of words@1 cannot be read") as refused:
        train_router(("words", "numbers"), storage, Settings())
    assert "--data words=FILE" in refused.value.next_step
    (storage / "adapters" / "words" / "1" / "run.json").unlink()
    with pytest.raises(AdapterError, match="words@1 does not say what it was trained on") as refused:
        train_router(("words", "numbers"), storage, Settings())
    assert "--data words=FILE" in refused.value.next_step
    for name in ("words", "words@1"):
        named = Settings(data=(f"{name}={tmp_path / 'moved.jsonl'}",))
        assert train_router(("words", "numbers"), storage, named).plain()["accuracy"] == 1.0
    for wrong in ("wrods=x", "words", "words="):
        with pytest.raises(UserError, match="names no file of words@1 or numbers@1"):
            train_router(("words", "numbers"), storage, Settings(data=(wrong,)))


def test_too_few_prompts_are_refused_with_the_reasons(storage: Path, tmp_path: Path) -> None:
    lines = (tmp_path / "words.jsonl").read_text().splitlines()[:9]
    (tmp_path / "words.jsonl").write_text("\n".join([*lines, "no row"]))
    with pytest.raises(UserError, match=r"words@1 has 9 prompts, 10 are needed at least; .*: 1"):
        train_router(("words", "numbers"), storage, Settings())


def test_what_cannot_be_served_on_one_base_is_refused(storage: Path, tiny_path: Path, tmp_path: Path) -> None:
    store = Store(storage / "adapters")
    known = {"base": Base.parse({"path": str(tiny_path), "sha256": base_sha256(tiny_path)}), "method": "lora"}
    store.publish("judge", save_reward(tmp_path / "judge", tiny_path, rank=4, seed=3), Facts(**known))
    store.publish("whole", tiny_path, Facts(**{**known, "method": "full"}))
    store.publish(
        "foreign", store.resolve("words").path, Facts(**{**known, "base": Base(path="elsewhere", sha256="0" * 64)})
    )
    for name, reason in (
        ("judge", "it scores and does not speak"),
        ("whole", "a whole model"),
        ("foreign", "for another base model, elsewhere"),
        ("words@1", "different adapters"),
        ("nobody", "no adapter 'nobody'"),
    ):
        with pytest.raises(UserError, match=reason):
            train_router(("words", name), storage, Settings())


def test_a_base_that_changed_is_refused(tmp_path: Path) -> None:
    base = save_tiny(tmp_path / "base")
    publish_trained(tmp_path / "storage", base, tmp_path)
    shutil.copyfile(save_tiny(tmp_path / "other", seed=1) / "model.safetensors", base / "model.safetensors")
    with pytest.raises(AdapterError, match="has other weights"):
        train_router(("words", "numbers"), tmp_path / "storage", Settings())


def test_without_a_template_of_the_base_the_adapters_own_is_used(tmp_path: Path) -> None:
    base = save_tiny(tmp_path / "base", chat_template=None)
    storage = tmp_path / "storage"
    publish_trained(storage, base, tmp_path)
    with pytest.raises(UserError, match="or there is none: 60"):
        train_router(("words", "numbers"), storage, Settings())
    for name in KINDS:
        (storage / "adapters" / name / "1" / "chat_template.jinja").write_text("Q: {{ messages[-1].content }} A:")
    trained = train_router(("words", "numbers"), storage, Settings())
    assert trained.router.template == "Q: {{ messages[-1].content }} A:"
    assert trained.plain()["accuracy"] >= 0.9
    (storage / "adapters" / "words" / "1" / "chat_template.jinja").write_text("other")
    with pytest.raises(UserError, match="different chat templates"):
        train_router(("words", "numbers"), storage, Settings())
