"""Sampling follows the distribution it says, and a seed repeats it whatever the batch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.tiny import build_tokenizer

from cairn.generation.request import Request
from cairn.generation.sampling import choose, draw, logprob_of, random_source

pytestmark = pytest.mark.slow

LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0, -30.0])


def shares(draws: int = 4000, **settings: Any) -> list[float]:
    request = Request((1,), seed=0, **settings)
    source = random_source(request)
    assert source is not None
    counts = torch.bincount(torch.tensor([draw(LOGITS, request, source) for _ in range(draws)]), minlength=5)
    return (counts / draws).tolist()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_temperature(temperature: float) -> None:
    expected = torch.softmax(LOGITS / temperature, -1).tolist()
    assert shares(temperature=temperature) == pytest.approx(expected, abs=0.03)


def test_top_k_keeps_the_likeliest() -> None:
    expected = torch.softmax(LOGITS[:2], -1).tolist()
    assert shares(temperature=1.0, top_k=2) == pytest.approx([*expected, 0, 0, 0], abs=0.03)


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    whole = torch.softmax(LOGITS, -1)
    kept = (whole[:2] / whole[:2].sum()).tolist()
    assert float(whole[0]) < 0.7 < float(whole[:2].sum())
    assert shares(temperature=1.0, top_p=0.7) == pytest.approx([*kept, 0, 0, 0], abs=0.03)
    assert shares(temperature=1.0, top_p=0.01, draws=50) == [1, 0, 0, 0, 0]


def test_top_k_and_top_p_together() -> None:
    assert shares(temperature=1.0, top_k=3, top_p=0.5, draws=50) == [1, 0, 0, 0, 0]


def test_a_tiny_temperature_does_not_overflow() -> None:
    assert shares(temperature=1e-30, draws=20) == [1, 0, 0, 0, 0]


def test_greedy_rows_beside_sampled_ones() -> None:
    requests = [Request((1,)), Request((1,), temperature=5.0, seed=3), Request((1,))]
    tokens = choose(LOGITS.expand(3, -1), requests, [random_source(request) for request in requests])
    assert (tokens[0], tokens[2]) == (0, 0)


def test_logprobs_are_the_models_own() -> None:
    entry = logprob_of(LOGITS, 2, alternatives=2, tokenizer=build_tokenizer())
    normaliser = math.log(sum(math.exp(float(x)) for x in LOGITS))
    assert entry.logprob == pytest.approx(0.0 - normaliser, rel=1e-5)
    assert [(top.token, top.logprob) for top in entry.top] == [
        (0, pytest.approx(2.0 - normaliser, rel=1e-5)),
        (1, pytest.approx(1.0 - normaliser, rel=1e-5)),
    ]


def test_a_seed_repeats_whatever_the_neighbours(make_generator: Any) -> None:
    tokens = tuple(build_tokenizer()("hello there")["input_ids"])

    def request(seed: int | None, adapter: str | None = "small") -> Request:
        return Request(tokens, adapter=adapter, max_tokens=10, temperature=1.5, seed=seed, ignore_eos=True)

    generator = make_generator()
    alone = generator.generate([request(7)])[0].tokens
    crowd = generator.generate([request(1), request(7), request(2, "large"), request(None, None), request(7)])
    assert crowd[1].tokens == crowd[4].tokens == alone
    assert crowd[0].tokens != alone
