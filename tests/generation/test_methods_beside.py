"""Adapters of different methods in one batch: each answers and scores as PEFT has it alone, whatever its neighbours."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.generation.methods import CASES, SOME, alone, save_adapter, save_method
from tests.tiny import build_tokenizer

from cairn.adapters.attach import attach_saved
from cairn.adapters.beside import beside, read_beside
from cairn.adapters.files import LoraWeights
from cairn.adapters.proof import small_values
from cairn.adapters.proven import proven
from cairn.adapters.specimens import build_specimen, probe_tokens
from cairn.config.model import Quantization
from cairn.errors import AdapterError
from cairn.generation.generator import Generator
from cairn.generation.request import Completion, Request
from cairn.generation.scoring import score
from cairn.generation.slots import SlotLinear
from cairn.models.load import load_model
from cairn.plugins import METHODS

pytestmark = pytest.mark.slow

PROMPT = tuple(probe_tokens(9)[0].tolist())
ANSWER = 4
NATS = 1e-5
"""Largest difference of a token's nats, relative to the largest logit."""


def ask(adapter: str | None, *, extra: int = 0) -> Request:
    """A prompt of 9 tokens, and `extra` more."""
    return Request(PROMPT + PROMPT[:extra], adapter=adapter, max_tokens=ANSWER, ignore_eos=True, logprobs=0)


def check_alone(model: Any, request: Request, found: Completion) -> None:
    """The answer is what `model` finds likeliest, with its own logarithms of the probabilities."""
    with torch.no_grad():
        tokens = torch.tensor([request.prompt + found.tokens])
        logits = model(input_ids=tokens).logits[0, len(request.prompt) - 1 : -1]
    wanted = logits.log_softmax(-1).gather(-1, tokens[0, len(request.prompt) :, None])[:, 0]
    nats = torch.tensor([entry.logprob for entry in found.logprobs])
    assert float((nats - wanted).abs().max() / logits.abs().max()) < NATS
    assert float((logits.amax(-1) - logits.gather(-1, tokens[0, len(request.prompt) :, None])[:, 0]).max()) < 1e-3


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    """(architecture, case) → directory."""
    root = tmp_path_factory.mktemp("methods")
    return {
        (architecture, case): save_adapter(
            root / architecture / case, case, build_specimen(architecture), seed=list(CASES).index(case)
        )
        for architecture, cases in SOME.items()
        for case in cases
    }


@pytest.fixture(scope="module")
def generators(folders: dict[tuple[str, str], Path]) -> dict[str, Generator]:
    """Architecture → a Generator with everything loaded that fits it."""
    made = {}
    for architecture, cases in SOME.items():
        model = build_specimen(architecture)
        found = {case: read_beside(folders[architecture, case], model) for case in cases}
        generator = Generator(
            model, build_tokenizer(), adapter_slots=len(CASES), max_running=len(CASES) + 1, prefill_tokens=32
        )
        for case, weights in found.items():
            generator.load(case, weights)
        made[architecture] = generator
    return made


@pytest.mark.parametrize("architecture", SOME)
def test_each_answers_and_scores_as_it_does_alone(
    architecture: str, folders: dict[tuple[str, str], Path], generators: dict[str, Generator]
) -> None:
    generator = generators[architecture]
    names: list[str | None] = [None, *generator.adapters.ids()]
    models = {name: alone(folders[architecture, name], architecture) for name in names if name}
    models[None] = build_specimen(architecture)
    answers = {}
    for seed in range(3):
        random.Random(seed).shuffle(names)
        requests = [ask(name, extra=(seed * place) % 5) for place, name in enumerate(names)]
        for name, request, found in zip(names, requests, generator.generate(requests), strict=True):
            check_alone(models[name], request, found)
            answers[name] = found.logprobs
    assert len(set(answers.values())) == len(names), "every adapter matters"
    windows = [(PROMPT, PROMPT[-4:]), (PROMPT[:6], PROMPT[1:4])]
    for name in names:
        found, wanted = generator.score(windows, adapter=name), score(models[name], windows)
        for ours, theirs in zip(found, wanted, strict=True):
            assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-5), name


EVERYWHERE = [
    "oft",
    "boft",
    "ia3",
    "road",
    "ln_tuning",
    "beft",
    "hra",
    "loha",
    "miss",
    "vera",
    "pvera",
    "vblora",
    "delora",
    "psoft",
    "gralora",
    "adalora",
    "lora",
]
"""Those that turn, scale or shift, and those that are a LoRA underneath."""


def test_these_are_proven_wherever_they_fit() -> None:
    found = {
        name: [claims for claims in proven()["methods"][name].values() if "unfit" not in claims] for name in EVERYWHERE
    }
    assert all(found.values())
    assert [name for name, each in found.items() if not all(claims["serves"] for claims in each)] == []


SERVED = [
    (name, architecture)
    for name, found in proven()["methods"].items()
    for architecture, claims in found.items()
    if claims.get("serves")
]


@pytest.mark.full
@pytest.mark.parametrize(("name", "architecture"), SERVED)
def test_every_method_that_is_proven_to_serve_does_beside_a_lora_and_the_base(
    name: str, architecture: str, tmp_path: Path
) -> None:
    model = build_specimen(architecture)
    folder = save_method(tmp_path / name, name, small_values(name), build_specimen(architecture), seed=1)
    plain = save_adapter(tmp_path / "plain", "lora", build_specimen(architecture))
    found = {"it": read_beside(folder, model), "plain": read_beside(plain, model)}
    generator = Generator(model, build_tokenizer())
    for adapter, weights in found.items():
        generator.load(adapter, weights)
    requests = [ask("plain"), ask("it"), ask(None), ask("it", extra=3)]
    alone_models = [alone(plain, architecture), alone(folder, architecture), build_specimen(architecture)]
    models = [*alone_models, alone_models[1]]
    for wanted, request, completion in zip(models, requests, generator.generate(requests), strict=True):
        check_alone(wanted, request, completion)


def test_one_leaves_nothing_behind_and_a_step_of_loras_takes_no_part_of_others(
    generators: dict[str, Generator], folders: dict[tuple[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = generators["llama"]
    before = generator.generate([ask(None), ask("lora")])
    monkeypatch.setattr(SlotLinear, "_around", None)
    assert [found.logprobs for found in generator.generate([ask(None), ask("lora")])] == [f.logprobs for f in before]
    monkeypatch.undo()
    generator.unload("oft")
    assert generator.adapters.routing.needs.keys() == {r.slot for r in generator.adapters._named.values()}
    layers = [module for module in generator.model.modules() if isinstance(module, SlotLinear)]
    generator.load("oft", read_beside(folders["llama", "oft"], build_specimen("llama")))
    assert any("turn/16" in layer.parts for layer in layers)
    for name in ("oft", "fine"):
        generator.unload(name)
    generator.load("fine", read_beside(folders["llama", "fine"], build_specimen("llama")))
    assert not any("turn/16" in layer.parts for layer in layers)
    check_alone(alone(folders["llama", "fine"], "llama"), ask("fine"), generator.generate([ask("fine")])[0])
    generator.load("oft", read_beside(folders["llama", "oft"], build_specimen("llama")))


def test_after_an_exception_in_a_layer_the_next_request_is_right(
    generators: dict[str, Generator], folders: dict[tuple[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = generators["qwen3"]
    requests = [ask(name) for name in ("oft", "dora", None, "road")]

    def failing(*_: Any) -> torch.Tensor:
        raise MemoryError("of the second layer")

    monkeypatch.setattr(generator.model.model.layers[1].mlp.up_proj.base, "forward", failing)
    found = generator.generate(requests)
    assert [(completion.finish, completion.error) for completion in found] == [
        ("error", "MemoryError: of the second layer")
    ] * 4
    monkeypatch.undo()
    assert generator.adapters.routing.idle
    check_alone(build_specimen("qwen3"), requests[2], generator.generate([ask(None)])[0])
    check_alone(alone(folders["qwen3", "dora"], "qwen3"), requests[1], generator.generate(requests)[1])


def test_what_is_a_lora_underneath_is_one_and_so_can_be_mixed(folders: dict[tuple[str, str], Path]) -> None:
    for case, rank in (("hra", 4), ("loha", 16)):
        found = read_beside(folders["llama", case], build_specimen("llama"))
        assert isinstance(found, LoraWeights)
        assert found.rank == rank


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("loha", {"rank": 8}, "q_proj has no rank of at most 31.*cairn adapters convert"),
        ("shira", {"rank": 8}, "no rank of at most"),
        ("lily", {"rank": 8}, "not linear in its input any more"),
        ("lora", {"rank": 4, "modules_to_save": ["lm_head"]}, "lm_head is trained whole.*cairn export"),
        ("lora", {"rank": 4, "parameters": "experts"}, "experts.* is a stack of weights.*cairn export"),
    ],
)
def test_what_has_no_exact_form_is_refused_in_words(name: str, values: dict[str, Any], reason: str) -> None:
    kind = METHODS.load(name)
    method = kind(kind.Config.parse(values))
    adapted = method.attach(build_specimen("mixtral" if "parameters" in values else "llama"))
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn_like(parameter))
    with pytest.raises(AdapterError) as caught:
        beside(adapted.eval(), method)
    assert re.search(reason, str(caught.value).replace("\n", " "))


def test_in_bf16_it_is_as_near_to_fp32_as_peft_is(folders: dict[tuple[str, str], Path]) -> None:
    def logits(model: Any) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = model(input_ids=probe_tokens()).logits.float()
        return found

    model = build_specimen("llama").to(torch.bfloat16)
    changes = {case: read_beside(folders["llama", case], model) for case in ("oft", "dora", "road")}
    generator = Generator(model, build_tokenizer())
    for case, change in changes.items():
        generator.load(case, change)
        wanted = logits(alone(folders["llama", case], "llama"))
        theirs = logits(attach_saved(build_specimen("llama").to(torch.bfloat16), folders["llama", case])) - wanted
        with generator.adapters.using(case):
            ours = logits(model) - wanted
        assert float(ours.norm()) < 1.2 * float(theirs.norm()), case


@pytest.mark.parametrize("kind", ["nf4", "int8"])
def test_beside_a_quantised_base(kind: str, tiny_path: Path, tmp_path: Path) -> None:
    def quantised() -> Any:
        return load_model(tiny_path, precision="fp32", quantization=Quantization(kind=kind))

    model, names = quantised(), ["dora", "ia3", "oft", "road"]
    folders = {case: save_adapter(tmp_path / case, case, quantised()) for case in names}
    found = {case: read_beside(folder, model) for case, folder in folders.items()}
    generator = Generator(model, build_tokenizer(), max_running=5)
    for case, changes in found.items():
        generator.load(case, changes)
    requests = [ask(name) for name in (*names, None)]
    for name, request, completion in zip((*names, None), requests, generator.generate(requests), strict=True):
        wanted = quantised() if name is None else attach_saved(quantised(), folders[name])
        check_alone(wanted, request, completion)
