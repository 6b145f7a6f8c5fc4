"""The Generator answers each request as transformers and PEFT would answer it alone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.generation.lora import peft_model
from tests.tiny import build_model, build_tokenizer

from cairn.errors import AdapterError, UserError
from cairn.generation.request import Completion, Event, Request

pytestmark = pytest.mark.slow

LOGPROB_TOLERANCE = 1e-4


def prompt(text: str) -> tuple[int, ...]:
    return tuple(build_tokenizer()(text)["input_ids"])


PROMPTS = [prompt(text) for text in ("a", "hello there", "The quick brown fox jumps over the lazy dog.", "x = [1, 2")]
ADAPTERS = (None, "small", "large", "attention", "rslora")


def greedy(tokens: tuple[int, ...], adapter: str | None = None, **settings: Any) -> Request:
    return Request(tokens, adapter=adapter, **{"max_tokens": 12, "ignore_eos": True, "logprobs": 5, **settings})


def alone(model: Any, tokens: tuple[int, ...], count: int) -> tuple[list[int], torch.Tensor]:
    """transformers' own greedy tokens and the log-probabilities [count, vocabulary] at each of them."""
    with torch.no_grad():
        ids = torch.tensor([tokens])
        model.generation_config.eos_token_id = None
        output = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=count,
            output_logits=True,
            return_dict_in_generate=True,
            pad_token_id=0,
        )
    logits = torch.cat(output.logits).float()
    return output.sequences[0, len(tokens) :].tolist(), torch.log_softmax(logits, -1)


def assert_equal_answer(got: Completion, expected: tuple[list[int], torch.Tensor]) -> None:
    """Same tokens up to a tie; same log-probabilities at every common prefix."""
    tokens, logprobs = expected
    assert len(got.tokens) == len(tokens)
    for step, entry in enumerate(got.logprobs):
        best = torch.topk(logprobs[step], 2).values
        for alternative in (entry, *entry.top):
            assert abs(alternative.logprob - float(logprobs[step, alternative.token])) < LOGPROB_TOLERANCE
        if float(best[0] - best[1]) > LOGPROB_TOLERANCE:
            assert got.tokens[step] == tokens[step]
        elif got.tokens[step] != tokens[step]:
            return


def test_base_equals_transformers(make_generator: Any) -> None:
    answers = make_generator(load=()).generate([greedy(tokens) for tokens in PROMPTS])
    for tokens, answer in zip(PROMPTS, answers, strict=True):
        assert answer.finish == "length"
        assert_equal_answer(answer, alone(build_model(), tokens, 12))


def test_mixed_batch_equals_each_adapter_alone(make_generator: Any, adapters: dict[str, Path]) -> None:
    cases = [(tokens, adapter) for tokens in PROMPTS for adapter in ADAPTERS]
    random.Random(0).shuffle(cases)
    generator = make_generator(max_running=7, prefill_tokens=16)
    answers = generator.generate([greedy(tokens, adapter) for tokens, adapter in cases])
    models = {name: build_model() if name is None else peft_model(adapters[name]) for name in ADAPTERS}
    for (tokens, adapter), answer in zip(cases, answers, strict=True):
        assert_equal_answer(answer, alone(models[adapter], tokens, 12))
    firsts = {answers[i].logprobs[0].logprob for i, (tokens, _) in enumerate(cases) if tokens == PROMPTS[2]}
    assert len(firsts) == len(ADAPTERS), "the adapters must differ, or the test shows nothing"
    assert generator.running == generator.waiting == 0


@pytest.mark.parametrize("prefill_tokens", [1, 3, 7, 64])
def test_chunked_prompt_equals_whole(make_generator: Any, prefill_tokens: int) -> None:
    whole = make_generator(prefill_tokens=512).generate([greedy(PROMPTS[2], "large")])[0]
    chunked = make_generator(prefill_tokens=prefill_tokens).generate([greedy(PROMPTS[2], "large")])[0]
    assert chunked.tokens == whole.tokens
    for one, other in zip(chunked.logprobs, whole.logprobs, strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=LOGPROB_TOLERANCE)


def test_joins_leaves_and_cancels_in_flight_change_nobody(make_generator: Any) -> None:
    """Random arrivals with random lengths and cancellations; each survivor answers as alone."""
    choice = random.Random(3)
    reference = make_generator(max_running=1)
    generator = make_generator(max_running=4, prefill_tokens=8)
    requests, events = {}, {}
    for _ in range(60):
        if choice.random() < 0.4 and len(requests) < 18:
            request = greedy(choice.choice(PROMPTS), choice.choice(ADAPTERS), max_tokens=choice.randint(1, 12))
            number = generator.submit(request)
            requests[number], events[number] = request, []
        if choice.random() < 0.1 and requests:
            generator.cancel(choice.choice(list(requests)))
        for event in generator.step():
            events[event.request_id].append(event)
    while generator.busy:
        for event in generator.step():
            events[event.request_id].append(event)
    finishes = [found[-1].finish for found in events.values()]
    assert finishes.count("cancelled") >= 1
    assert finishes.count("length") >= 8
    for number, request in requests.items():
        tokens = [event.token for event in events[number] if event.token is not None]
        expected = reference.generate([request])[0].tokens
        assert tuple(tokens) == expected[: len(tokens)]
        assert events[number][-1].finish in ("cancelled", "length")
        assert events[number][-1].finish == "cancelled" or len(tokens) == len(expected)
    assert not any(resident.uses for resident in generator.adapters._named.values())


def test_a_late_request_gets_its_first_token_while_others_stream(make_generator: Any) -> None:
    generator = make_generator(load=())
    early = [generator.submit(greedy(PROMPTS[1], max_tokens=40)) for _ in range(3)]
    for _ in range(5):
        generator.step()
    late = generator.submit(greedy(PROMPTS[2], max_tokens=3))
    order: list[Event] = []
    while generator.busy:
        order += generator.step()
    first_late = next(i for i, event in enumerate(order) if event.request_id == late)
    ends = [i for i, event in enumerate(order) if event.request_id in early and event.finish]
    assert len(ends) == 3
    assert first_late < min(ends)
    end_late = next(i for i, event in enumerate(order) if event.request_id == late and event.finish)
    assert end_late < min(ends)


def test_more_requests_than_rows_wait_their_turn(make_generator: Any) -> None:
    generator = make_generator(load=(), max_running=2)
    numbers = [generator.submit(greedy(PROMPTS[0], max_tokens=4)) for _ in range(5)]
    generator.step()
    assert (generator.running, generator.waiting) == (2, 3)
    ends = [event.request_id for _ in range(40) for event in generator.step() if event.finish]
    assert ends == numbers


def test_cancel_frees_the_row(make_generator: Any) -> None:
    generator = make_generator(max_running=1)
    first = generator.submit(greedy(PROMPTS[1], "small", max_tokens=100))
    second = generator.submit(greedy(PROMPTS[1], "small", max_tokens=2))
    generator.step()
    generator.cancel(first)
    events = [event for _ in range(6) for event in generator.step()]
    assert [(e.request_id, e.finish) for e in events if e.finish] == [(first, "cancelled"), (second, "length")]
    assert generator.unload("small")


def test_window_ends_an_answer(make_generator: Any) -> None:
    generator = make_generator(load=(), max_length=20)
    answer = generator.generate([greedy(PROMPTS[1], max_tokens=None)])[0]
    assert (answer.finish, len(answer.tokens)) == ("length", 20 - len(PROMPTS[1]))
    assert_equal_answer(answer, alone(build_model(), PROMPTS[1], 9))


def test_end_token_stops_and_shows_no_text(make_generator: Any) -> None:
    generator = make_generator(load=())
    free = generator.generate([greedy(PROMPTS[1])])[0]
    generator.ends = frozenset({free.tokens[3]})
    stopped = generator.generate([greedy(PROMPTS[1], ignore_eos=False)])[0]
    at = free.tokens.index(free.tokens[3])
    assert (stopped.finish, stopped.tokens) == ("stop", free.tokens[: at + 1])
    assert free.text.startswith(stopped.text)


@pytest.mark.parametrize(
    ("request_", "where"),
    [
        (Request(()), "prompt"),
        (Request((1,) * 512), "prompt"),
        (Request((999,)), "prompt"),
        (Request((1,), temperature=-1.0), "temperature"),
        (Request((1,), top_p=0.0), "top_p"),
        (Request((1,), top_k=-1), "top_k"),
        (Request((1,), max_tokens=0), "max_tokens"),
        (Request((1,), stop=("",)), "stop"),
        (Request((1,), logprobs=21), "logprobs"),
        (Request((1,), seed=2**64), "seed"),
    ],
)
def test_bad_requests_are_refused(make_generator: Any, request_: Request, where: str) -> None:
    generator = make_generator(load=())
    with pytest.raises(UserError) as refused:
        generator.submit(request_)
    assert refused.value.where == where
    assert not generator.busy


def test_unknown_adapter_is_refused_with_the_nearest(make_generator: Any) -> None:
    with pytest.raises(AdapterError, match="did you mean 'small'"):
        make_generator().submit(Request((1,), adapter="smal"))


def test_an_exception_in_a_layer_ends_its_requests_and_no_others(make_generator: Any) -> None:
    generator = make_generator()
    expected = generator.generate([greedy(PROMPTS[1], "large")])[0]
    layer = generator.model.model.layers[1]
    healthy = layer.forward

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("out of memory")

    layer.forward = broken
    failed = generator.generate([greedy(PROMPTS[1], "small"), greedy(PROMPTS[2])])
    assert [answer.finish for answer in failed] == ["error", "error"]
    assert "out of memory" in str(failed[0].error)
    layer.forward = healthy
    assert generator.generate([greedy(PROMPTS[1], "large")])[0].tokens == expected.tokens
    assert generator.adapters.routing.idle


def test_an_adapter_that_overflows_poisons_nobody(make_generator: Any, adapters: dict[str, Path]) -> None:
    from cairn.adapters.files import read_lora

    generator = make_generator(load=("small",), max_running=2)
    weights = read_lora(adapters["large"])
    for _, up in weights.layers.values():
        up.fill_(1e30)
    generator.load("huge", weights)
    good = generator.generate([greedy(PROMPTS[1], "small")])[0]
    mixed = generator.generate([greedy(PROMPTS[1], "huge"), greedy(PROMPTS[1], "small")])
    assert mixed[0].finish == "error"
    assert "finite" in str(mixed[0].error)
    assert mixed[1].tokens == good.tokens
    again = generator.generate([greedy(PROMPTS[1], "small"), greedy(PROMPTS[2])])
    assert again[0].tokens == good.tokens
    assert again[1].finish == "length"


def test_scoring_uses_the_adapter(make_generator: Any, adapters: dict[str, Path]) -> None:
    generator = make_generator()
    windows = [(PROMPTS[2][:-1], PROMPTS[2][1:]), (PROMPTS[1][:-1], PROMPTS[1][1:])]
    for name in (None, "large"):
        model = build_model() if name is None else peft_model(adapters[name])
        nats = generator.score(windows, adapter=name)
        for (inputs, targets), scored in zip(windows, nats, strict=True):
            with torch.no_grad():
                logprobs = torch.log_softmax(model(torch.tensor([inputs])).logits[0].float(), -1)
            expected = [-float(logprobs[i, target]) for i, target in enumerate(targets)]
            assert scored == pytest.approx(expected, rel=1e-4)
    assert generator.adapters.routing.idle


def test_sliding_window_layers_see_only_their_window() -> None:
    from transformers import MistralConfig, MistralForCausalLM, Qwen3Config, Qwen3ForCausalLM

    from cairn.generation.generator import Generator

    shape = {
        "vocab_size": 260,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "initializer_range": 0.3,
    }
    mixed = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1, "head_dim": 8}
    for build in (
        lambda: MistralForCausalLM(MistralConfig(**shape, sliding_window=8)),
        lambda: Qwen3ForCausalLM(Qwen3Config(**shape, **mixed)),
    ):
        torch.manual_seed(0)
        model = build().eval()
        expected = [alone(model, tokens, 12) for tokens in PROMPTS]
        generator = Generator(model, build_tokenizer(), prefill_tokens=16)
        for answer, wanted in zip(generator.generate([greedy(t) for t in PROMPTS]), expected, strict=True):
            assert_equal_answer(answer, wanted)
