"""Soft prompts in one batch with other adapters and with the base: each answers and scores as it does alone, in PEFT."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.generation.methods import save_method
from tests.tiny import build_tokenizer

from cairn.adapters.attach import attach_saved
from cairn.adapters.beside import read_beside
from cairn.adapters.specimens import build_specimen, probe_tokens
from cairn.errors import AdapterError, UserError
from cairn.generation.generator import Generator
from cairn.generation.request import Request
from cairn.generation.scoring import score

pytestmark = pytest.mark.slow

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "lora": ("lora", {"rank": 4}),
    "prompt": ("prompt_tuning", {"num_virtual_tokens": 5}),
    "network": ("p_tuning", {"num_virtual_tokens": 3}),
    "prefix": ("prefix_tuning", {"num_virtual_tokens": 7}),
    "cartridge": ("cartridge", {"num_virtual_tokens": 4}),
    "context": ("cpt", {"cpt_token_ids": [5, 6, 7, 8]}),
}
ARCHITECTURES = ("llama", "gpt2", "gemma2")
PROMPT = tuple(probe_tokens(9)[0].tolist())
ANSWER = 4
EXACT = 1e-5
"""Of the largest logit, or of the nats."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    """(architecture, case) → directory."""
    root = tmp_path_factory.mktemp("prompts")
    return {
        (architecture, case): save_method(root / architecture / case, *CASES[case], build_specimen(architecture))
        for architecture in ARCHITECTURES
        for case in CASES
    }


def generator_of(folders: dict[tuple[str, str], Path], architecture: str, **settings: Any) -> Generator:
    model = build_specimen(architecture)
    found = {case: read_beside(folders[architecture, case], model) for case in CASES}
    generator = Generator(model, build_tokenizer(), **settings)
    for case, weights in found.items():
        generator.load(case, weights)
    return generator


@torch.no_grad()
def said_by_peft(
    folder: Path | None, architecture: str, prompt: tuple[int, ...]
) -> tuple[list[int], list[float], list[float]]:
    """Greedy tokens, the logarithm of the probability of each, and the largest logit beside it, without a cache."""
    from peft import PeftModel

    base = build_specimen(architecture)
    model = base if folder is None else PeftModel.from_pretrained(base, str(folder)).eval()
    tokens, nats, sizes = list(prompt), [], []
    for _ in range(ANSWER):
        logits = model(input_ids=torch.tensor([tokens])).logits[0, -1]
        first, second = logits.topk(2).values.tolist()
        assert first - second > 1e-4, "the likeliest token is told from the next"
        tokens.append(int(logits.argmax()))
        nats.append(float(logits.log_softmax(-1).max()))
        sizes.append(float(logits.abs().max()))
    return tokens[len(prompt) :], nats, sizes


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_in_a_mixed_batch_each_answers_as_peft_does_alone(architecture, folders):
    generator = generator_of(folders, architecture, max_running=4, prefill_tokens=8)
    asked = [(case, extra) for case in (*CASES, None) for extra in (0, 4)]
    random.Random(3).shuffle(asked)
    requests = [
        Request(PROMPT + PROMPT[:extra], adapter=case, max_tokens=ANSWER, ignore_eos=True, logprobs=0)
        for case, extra in asked
    ]
    together = generator.generate(requests)
    for (case, _), request, found in zip(asked, requests, together, strict=True):
        folder = folders[architecture, case] if case else None
        wanted, nats, sizes = said_by_peft(folder, architecture, request.prompt)
        assert list(found.tokens) == wanted, case
        for one, value, size in zip(found.logprobs, nats, sizes, strict=True):
            assert one.logprob == pytest.approx(value, abs=EXACT * size)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_it_scores_as_the_model_with_it_does(architecture, folders):
    generator = generator_of(folders, architecture)
    windows = [(PROMPT[:-1], PROMPT[1:]), (PROMPT[:4], PROMPT[3:5]), (PROMPT[:6], PROMPT[4:7])]
    for case in CASES:
        wanted = score(attach_saved(build_specimen(architecture), folders[architecture, case]), windows)
        found = generator.score(windows, adapter=case)
        assert [n for w in found for n in w] == pytest.approx([n for w in wanted for n in w], rel=EXACT)


def test_virtual_tokens_count_in_the_window(folders):
    generator = generator_of(folders, "llama", max_length=16)
    with pytest.raises(UserError, match="the window is 11"):
        generator.submit(Request(PROMPT + PROMPT[:2], adapter="prompt"))
    assert generator.adapters.acquire("prompt").uses == 1
    (answer,) = generator.generate([Request(PROMPT, adapter="prompt", max_tokens=None, ignore_eos=True)])
    assert len(answer.tokens) == 16 - 5 - len(PROMPT)
    narrow = Generator(build_specimen("llama"), build_tokenizer(), max_length=8)
    with pytest.raises(AdapterError, match="7 virtual tokens leave no room in a window of 8"):
        narrow.load("prefix", read_beside(folders["llama", "prefix"], build_specimen("llama")))
    assert narrow.adapters.ids() == []


def test_that_of_another_base_is_refused_and_leaves_the_others(folders, tmp_path):
    generator = generator_of(folders, "llama")
    before = generator.generate([Request(PROMPT, adapter="prompt", max_tokens=2)])
    strange = read_beside(folders["gpt2", "prefix"], build_specimen("gpt2"))
    with pytest.raises(AdapterError, match="a virtual token has 256 numbers of keys and values, this model needs 128"):
        generator.load("strange", strange)
    assert generator.generate([Request(PROMPT, adapter="prompt", max_tokens=2)]) == before


def test_a_model_with_virtual_tokens_speaks_with_them(folders):
    model = attach_saved(build_specimen("llama"), folders["llama", "prompt"])
    (found,) = Generator(model, build_tokenizer()).generate([Request(PROMPT, max_tokens=ANSWER, ignore_eos=True)])
    assert list(found.tokens) == said_by_peft(folders["llama", "prompt"], "llama", PROMPT)[0]
