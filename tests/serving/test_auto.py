"""`model="auto"`: the router's adapter or the base answers, and says which; without a router there is nothing to ask."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.serving.conftest import Service, publish
from tests.training.routed import texts

from cairn.adapters.routing.features import prompt_features
from cairn.adapters.routing.router import load_router
from cairn.errors import AdapterError
from cairn.models.load import load_model, load_tokenizer
from cairn.serving.refusal import Refusal
from cairn.serving.replica import Call, Opening, Replica
from cairn.serving.settings import InferenceSettings
from cairn.store.routers import Routers

FOREIGN = "{}[]()<>!?;:#%&*+=~^|" * 3
SAMPLING = {"max_tokens": 3, "temperature": 0.0}


@pytest.fixture(scope="module")
def storage(tiny_path: Path, folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("storage")
    publish(storage, tiny_path, folders)
    return storage


def settings(storage: Path, tiny: Path, **more: Any) -> InferenceSettings:
    return InferenceSettings.read({"model": str(tiny), "storage": str(storage), "name": "tiny", **more})


@pytest.fixture(scope="module")
def replica(storage: Path, tiny_path: Path) -> Iterator[Replica]:
    replica = Replica(settings(storage, tiny_path, router="front"))
    yield replica
    replica.engine.close()


def said(text: str) -> tuple[dict[str, str], ...]:
    return ({"role": "user", "content": text},)


def opening(replica: Replica, call: Call) -> Any:
    """The first thing that a replica says to a call."""

    async def first() -> Any:
        stream = replica.generate(call)
        try:
            return await anext(stream)
        finally:
            await stream.aclose()  # type: ignore[attr-defined]

    return asyncio.run(first())


@pytest.mark.unit
@pytest.mark.parametrize(
    ("call", "label"),
    [
        *((Call("auto", SAMPLING, messages=said(text)), "support@2") for text in texts("words", 2, seed=9)),
        *((Call("auto", SAMPLING, messages=said(text)), "legal@1") for text in texts("numbers", 2, seed=9)),
        (Call("auto", SAMPLING, messages=said(FOREIGN)), "tiny"),
        (Call("auto", SAMPLING, text=FOREIGN), "tiny"),
        (Call("auto", SAMPLING, tokens=tuple(FOREIGN.encode())), "tiny"),
    ],
)
def test_the_router_chooses_and_the_answer_says_what(replica: Replica, call: Call, label: str) -> None:
    found = opening(replica, call)
    assert isinstance(found, Opening), found
    assert found.label == label


@pytest.mark.unit
def test_what_is_looked_at_are_the_tokens_of_the_prompt(replica: Replica, storage: Path, tiny_path: Path) -> None:
    """The same choice as the library's, in a model with resident adapters too."""
    router = load_router(Routers(storage).resolve("front").path)
    model, tokenizer = load_model(tiny_path, precision="fp32"), load_tokenizer(tiny_path)
    asked = [said(text) for kind in ("words", "numbers") for text in texts(kind, 10, seed=5)]
    tokens = [tokenizer.apply_chat_template(list(m), add_generation_prompt=True, return_dict=False) for m in asked]
    wanted = router.choose(prompt_features(model, tokens))
    assert [opening(replica, Call("auto", SAMPLING, messages=m)).label for m in asked] == [w or "tiny" for w in wanted]
    assert {"support@2", "legal@1"} <= set(wanted)


@pytest.mark.unit
@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (Call("auto", SAMPLING, tokens=(70, 10_000)), "token ids go from 0"),
        (Call("auto", SAMPLING, tokens=(70,) * 600), "no room for an answer"),
        (Call("auto", SAMPLING), "no tokens"),
        (Call("auto", {"max_tokens": 0}, text="a"), "max_tokens"),
    ],
)
def test_a_bad_request_is_refused_before_it_is_routed(replica: Replica, call: Call, reason: str) -> None:
    found = opening(replica, call)
    assert isinstance(found, Refusal)
    assert found.status == 400
    assert reason in found.message


@pytest.mark.unit
def test_without_a_router_it_is_told_how_to_get_one(storage: Path, tiny_path: Path) -> None:
    replica = Replica(settings(storage, tiny_path))
    try:
        found = opening(replica, Call("auto", SAMPLING, text="a"))
        assert (found.status, found.code) == (404, "model_not_found")
        assert "cairn adapters route A B --publish NAME" in found.message
        assert "auto" not in [entry["id"] for entry in asyncio.run(replica.models())]
    finally:
        replica.engine.close()


@pytest.mark.unit
def test_a_router_that_cannot_work_here_stops_the_service_from_starting(
    storage: Path, tiny_path: Path, tmp_path: Path
) -> None:
    with pytest.raises(AdapterError, match="no router 'frnt'"):
        Replica(settings(storage, tiny_path, router="frnt"))
    shutil.copytree(storage, tmp_path / "storage")
    shutil.rmtree(tmp_path / "storage" / "adapters" / "legal")
    with pytest.raises(AdapterError, match="'legal@1' does not exist"):
        Replica(settings(tmp_path / "storage", tiny_path, router="front"))
    card = tmp_path / "storage" / "routers" / "front" / "1" / "card.json"
    card.chmod(0o644)
    sha256 = Routers(storage).resolve("front").card.base.sha256
    card.write_text(card.read_text().replace(sha256, "0" * 64))
    with pytest.raises(AdapterError, match="front@1 was made for another base model"):
        Replica(settings(tmp_path / "storage", tiny_path, router="front"))


@pytest.mark.ray
def test_auto_over_http(service: Service) -> None:
    client = service.client()
    listed = {model.id: model for model in client.models.list()}
    assert listed["auto"].parent == "tiny"
    for text, label in ((texts("words", 1, seed=9)[0], "support@2"), (texts("numbers", 1, seed=9)[0], "legal@1")):
        wanted: dict[str, Any] = {"messages": said(text), "max_tokens": 8, "temperature": 0}
        answer = client.chat.completions.create(model="auto", n=2, **wanted)
        alone = client.chat.completions.create(model=label, **wanted)
        assert answer.model == label
        assert [choice.message.content for choice in answer.choices] == [alone.choices[0].message.content] * 2
        chunks = list(client.chat.completions.create(model="auto", stream=True, **wanted))
        assert {chunk.model for chunk in chunks} == {label}
    assert client.completions.create(model="auto", prompt=FOREIGN, max_tokens=2).model == "tiny"
    several = httpx.post(
        f"{service.url}/v1/completions", json={"model": "auto", "prompt": ["a", "b"], "max_tokens": 1}, timeout=60
    )
    assert several.status_code == 400
    assert "one by one" in several.json()["error"]["message"]
