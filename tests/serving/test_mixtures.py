"""`model="support:0.7+legal:0.3"`: what it resolves to, that it is the exact sum, and what is refused with which status."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch
from tests.adapters.updates import relative
from tests.generation.lora import save_lora
from tests.serving.conftest import publish
from tests.tiny import build_model, build_tokenizer

from cairn.adapters.files import LoraWeights, read_lora
from cairn.errors import AdapterError
from cairn.generation.generator import Generator
from cairn.generation.request import Request
from cairn.models.identity import base_sha256, tokenizer_sha256
from cairn.models.load import load_tokenizer
from cairn.serving.catalogue import Catalogue
from cairn.serving.engine import make_resident
from cairn.serving.loaded import LoadedAdapter, content_sha256
from cairn.serving.refusal import UnknownModelError, refusal_of
from cairn.store.card import Base, Facts

pytestmark = pytest.mark.unit


@pytest.fixture
def catalogue(tmp_path: Path, tiny_path: Path, folders: dict[str, Path]) -> Catalogue:
    publish(tmp_path, tiny_path, folders)
    return Catalogue(
        build_model(),
        base_name="tiny",
        base_path=str(tiny_path),
        storage=str(tmp_path),
        base_sha256=base_sha256(tiny_path),
        tokenizer_sha256=tokenizer_sha256(load_tokenizer(tiny_path)),
    )


def deltas(weights: LoraWeights) -> dict[str, torch.Tensor]:
    return {path: weights.scaling[path] * (b.double() @ a.double()) for path, (a, b) in weights.layers.items()}


def test_a_mixture_is_the_exact_sum_of_its_parts(catalogue: Catalogue, folders: dict[str, Path]) -> None:
    served = catalogue.resolve("support@prod:0.7+legal:0.3")
    assert served.label == "support@1:0.7+legal@1:0.3"
    found = deltas(asyncio.run(catalogue.weights(served)))
    small, other = deltas(read_lora(folders["small"])), deltas(read_lora(folders["rslora"]))
    assert max(relative(found[path], 0.7 * small[path] + 0.3 * other[path]) for path in found) < 1e-6
    assert set(found) == set(small) | set(other)


def test_its_id_names_versions_and_weights_so_a_moved_alias_never_mixes(catalogue: Catalogue) -> None:
    before = catalogue.resolve("support@prod:0.7+legal:0.3")
    assert before.adapter_id == catalogue.resolve("legal@1:0.3+support@1:.7").adapter_id
    assert before.adapter_id != catalogue.resolve("support@prod:0.3+legal:0.7").adapter_id
    catalogue.store.promote("support", 2, "prod")
    after = catalogue.resolve("support@prod:0.7+legal:0.3")
    assert after.label == "support@2:0.7+legal@1:0.3"
    assert before.adapter_id != after.adapter_id
    assert catalogue.resolve("support+legal").label == "support@2:1.0+legal@1:1.0"
    assert catalogue.resolve("support:0.5").adapter_id == "support@2:0.5"


def test_an_adapter_that_was_loaded_by_name_takes_part_by_its_content(
    catalogue: Catalogue, folders: dict[str, Path]
) -> None:
    sha256 = content_sha256(folders["small"])
    catalogue.loaded.add(LoadedAdapter("mine", folders["small"], sha256))
    served = catalogue.resolve("mine:0.5+legal:0.5")
    assert f"mine#{sha256[:16]}:0.5" in str(served.adapter_id)
    assert asyncio.run(catalogue.weights(served)).rank == 12


@pytest.mark.parametrize(
    ("model", "status", "message"),
    [
        ("suport:0.7+legal:0.3", 404, "did you mean 'support'"),
        ("support@9:0.7+legal:0.3", 404, "has no version 9"),
        ("support:0+legal:1", 400, "'0' cannot be the weight of support"),
        ("support:nan", 400, "'nan' cannot be the weight"),
        ("support:0.7+", 400, "cannot name an adapter"),
        ("../x:1", 400, "cannot name an adapter"),
        ("auto:0.5+legal:0.5", 400, "reserved"),
        ("tiny:0.5+legal:0.5", 400, "the base is in a mixture already"),
        ("support:0.5+support@2:0.5", 400, "names an adapter twice"),
        ("foreign:0.5+legal:0.5", 400, "another base model"),
        ("+".join(["legal"] * 17), 400, "a mixture of 17"),
    ],
)
def test_what_is_no_mixture_is_refused_in_openais_shape(
    catalogue: Catalogue, model: str, status: int, message: str
) -> None:
    with pytest.raises(AdapterError) as error:
        catalogue.resolve(model)
    refusal = refusal_of(error.value)
    assert (refusal.status, refusal.param) == (status, "model")
    assert isinstance(error.value, UnknownModelError) == (status == 404)
    assert message in refusal.message


def test_other_chat_templates_are_refused(catalogue: Catalogue, tmp_path: Path, tiny_path: Path) -> None:
    facts = Facts(base=Base(path=str(tiny_path), sha256=catalogue.base_sha256), method="lora")
    for name, template in (("odd", "{{ messages }}"), ("even", "{{ messages | length }}")):
        folder = save_lora(tmp_path / name, rank=4, seed=6)
        (folder / "chat_template.jinja").write_text(template)
        catalogue.store.publish(name, folder, facts)
    with pytest.raises(AdapterError, match="different chat templates"):
        catalogue.resolve("odd:0.5+even:0.5")
    assert catalogue.resolve("legal:0.5+odd:0.5").path == catalogue.store.resolve("odd").path


def test_one_that_scores_does_not_speak_in_a_mixture_either(catalogue: Catalogue) -> None:
    with pytest.raises(AdapterError, match="it scores and does not speak"):
        asyncio.run(catalogue.weights(catalogue.resolve("judge:0.5+legal:0.5")))
    weights = asyncio.run(catalogue.weights(catalogue.resolve("judge:0.5"), scores=True))
    assert weights.head is not None


def test_it_answers_beside_others_as_it_does_alone_and_its_rank_is_limited(
    catalogue: Catalogue, folders: dict[str, Path]
) -> None:
    tokens = tuple(build_tokenizer()("The quick brown fox")["input_ids"])
    served = catalogue.resolve("support@1:0.7+legal:0.3")
    mixture = asyncio.run(catalogue.weights(served))

    def answer(limit: int, *others: str) -> list[float]:
        generator = Generator(build_model(), build_tokenizer(), max_rank=limit)
        assert make_resident(generator, str(served.adapter_id), mixture)
        for name in others:
            generator.load(name, read_lora(folders[name]))
        asked = [served.adapter_id, *others, None]
        requests = [Request(tokens, adapter=one, max_tokens=8, logprobs=0) for one in asked]
        return [entry.logprob for entry in generator.generate(requests)[0].logprobs]

    assert answer(16, "small", "rslora") == pytest.approx(answer(16), abs=1e-4)
    with pytest.raises(AdapterError, match="rank 12 is above the limit of 8") as refused:
        answer(8)
    assert refusal_of(refused.value).status == 400
