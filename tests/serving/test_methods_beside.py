"""Adapters of other methods than LoRA through the store and the service: read with distrust, exact, refused in words."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import openai
import pytest
import torch
from tests.generation.methods import save_adapter
from tests.serving.conftest import Service
from tests.tiny import build_model, build_tokenizer

from cairn.adapters.attach import attach_saved
from cairn.adapters.files import LoraWeights
from cairn.adapters.linear_change import AdapterChanges
from cairn.errors import AdapterError
from cairn.generation.generator import Generator
from cairn.generation.request import Request
from cairn.models.identity import base_sha256, tokenizer_sha256
from cairn.models.load import load_tokenizer
from cairn.serving.catalogue import Catalogue
from cairn.serving.engine import make_resident
from cairn.serving.loaded import LoadedAdapter, content_sha256
from cairn.store.card import Base, Facts

PROMPT = tuple(build_tokenizer()("The quick brown fox")["input_ids"])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Adapters of the tiny model by case."""
    root = tmp_path_factory.mktemp("saved")
    return {case: save_adapter(root / case, case, build_model()) for case in ("oft", "dora", "hra", "ia3")}


@pytest.fixture
def catalogue(tmp_path: Path, tiny_path: Path, saved: dict[str, Path]) -> Catalogue:
    """A store with each, one of another base, and one that was loaded by name."""
    made = Catalogue(
        build_model(),
        base_name="tiny",
        base_path=str(tiny_path),
        storage=str(tmp_path),
        base_sha256=base_sha256(tiny_path),
        tokenizer_sha256=tokenizer_sha256(load_tokenizer(tiny_path)),
    )
    base = Base(path=str(tiny_path), sha256=made.base_sha256)
    for case, folder in saved.items():
        made.store.publish(case, folder, Facts(base=base, method=case))
    made.store.publish("foreign", saved["oft"], Facts(base=Base(path="x", sha256="0" * 64), method="oft"))
    made.loaded.add(LoadedAdapter("mine", saved["ia3"], content_sha256(saved["ia3"])))
    return made


@pytest.mark.slow
def test_published_and_loaded_ones_answer_beside_each_other_as_alone(
    catalogue: Catalogue, saved: dict[str, Path]
) -> None:
    folders = {"oft": saved["oft"], "dora@1": saved["dora"], "hra": saved["hra"], "mine": saved["ia3"]}
    generator = Generator(build_model(), build_tokenizer())
    requests = []
    for name in folders:
        served = catalogue.resolve(name)
        weights = asyncio.run(catalogue.weights(served))
        assert isinstance(weights, LoraWeights if name == "hra" else AdapterChanges)
        assert make_resident(generator, str(served.adapter_id), weights)
        requests.append(Request(PROMPT, adapter=served.adapter_id, max_tokens=6, ignore_eos=True))
    assert not any("peft" in type(module).__module__ for module in catalogue.model.modules())
    for folder, found in zip(folders.values(), generator.generate(requests), strict=True):
        tokens = torch.tensor([PROMPT + found.tokens])
        with torch.no_grad():
            logits = attach_saved(build_model(), folder)(input_ids=tokens).logits[0, len(PROMPT) - 1 : -1]
        chosen = logits.gather(-1, tokens[0, len(PROMPT) :, None])[:, 0]
        assert float((logits.amax(-1) - chosen).max()) < 1e-4


@pytest.mark.slow
def test_what_adds_up_is_mixed_and_what_does_not_is_refused(catalogue: Catalogue, saved: dict[str, Path]) -> None:
    half = asyncio.run(catalogue.weights(catalogue.resolve("hra:0.5")))
    whole = asyncio.run(catalogue.weights(catalogue.resolve("hra")))
    for path, (a, b) in whole.layers.items():
        delta = half.scaling[path] * half.layers[path][1] @ half.layers[path][0]
        assert delta.allclose(0.5 * b @ a, atol=1e-6)
    for model, reason in (
        ("oft:0.5+hra:0.5", "oft@1 is no sum of matrices .turn/16."),
        ("dora:0.5", r"dora@1 is no sum of matrices .scale."),
    ):
        with pytest.raises(AdapterError, match=reason) as caught:
            asyncio.run(catalogue.weights(catalogue.resolve(model)))
        assert "cairn adapters convert" in str(caught.value)
    with pytest.raises(AdapterError, match="another base model"):
        catalogue.resolve("foreign")
    with pytest.raises(AdapterError, match="only LoRAs score beside others"):
        asyncio.run(catalogue.weights(catalogue.resolve("oft"), scores=True))


@pytest.mark.slow
def test_a_broken_one_is_refused_and_the_base_left_alone(
    catalogue: Catalogue, saved: dict[str, Path], tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    folder = save_adapter(tmp_path / "broken", "oft", build_model())
    tensors = load_file(folder / "adapter_model.safetensors")
    first = next(iter(tensors))
    save_file(tensors | {first: torch.full_like(tensors[first], float("inf"))}, folder / "adapter_model.safetensors")
    catalogue.loaded.add(LoadedAdapter("broken", folder, content_sha256(folder)))
    with pytest.raises(AdapterError, match="NaN or infinity"):
        asyncio.run(catalogue.weights(catalogue.resolve("broken")))
    assert not any("peft" in type(module).__module__ for module in catalogue.model.modules())
    assert asyncio.run(catalogue.weights(catalogue.resolve("oft"))).method == "oft"


@pytest.mark.ray
def test_over_http_by_name_in_a_running_service(service: Service) -> None:
    folder = save_adapter(service.folders["small"].parent / "oft", "oft", build_model())

    def post(action: str, **body: str) -> int:
        return httpx.post(f"{service.url}/v1/{action}_lora_adapter", json={"lora_name": "turned", **body}).status_code

    assert post("load", lora_path=str(folder)) == 200
    asked = {"prompt": list(PROMPT), "max_tokens": 1, "temperature": 0, "logprobs": 1}
    (found,) = service.client().completions.create(model="turned", **asked).choices[0].logprobs.token_logprobs
    with torch.no_grad():
        logits = attach_saved(build_model(), folder)(input_ids=torch.tensor([PROMPT])).logits[0, -1]
    assert found == pytest.approx(float(logits.log_softmax(-1).amax()), abs=1e-4)
    with pytest.raises(openai.BadRequestError, match="is no sum of matrices"):
        service.client().completions.create(model="turned:0.5+legal:0.5", **asked)
    assert post("unload") == 200
