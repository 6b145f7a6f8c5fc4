"""Slots: a load is whole or nothing, a slot is freed only when nobody uses it, neighbours keep their bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiny import build_tokenizer

from cairn.adapters.files import read_lora
from cairn.errors import AdapterError
from cairn.generation.request import Request

pytestmark = pytest.mark.slow

TOKENS = tuple(build_tokenizer()("hello there")["input_ids"])


def ask(adapter: str | None, count: int = 6) -> Request:
    return Request(TOKENS, adapter=adapter, max_tokens=count, ignore_eos=True, logprobs=0)


def logprobs(generator: Any, adapter: str | None) -> list[float]:
    return [entry.logprob for entry in generator.generate([ask(adapter)])[0].logprobs]


def test_unload_in_flight_is_deferred(make_generator: Any, adapters: dict[str, Path]) -> None:
    generator = make_generator(load=("small",), adapter_slots=1)
    expected = generator.generate([ask("small", 12)])[0].tokens
    number = generator.submit(ask("small", 12))
    got = [event.token for event in generator.step()]
    assert generator.unload("small") is False
    with pytest.raises(AdapterError, match="no adapter 'small'"):
        generator.submit(ask("small"))
    with pytest.raises(AdapterError, match="slots are taken"):
        generator.load("large", read_lora(adapters["large"]))
    while generator.busy:
        got += [event.token for event in generator.step() if event.request_id == number]
    assert tuple(got) == expected
    generator.load("large", read_lora(adapters["large"]))
    assert logprobs(generator, "large") != logprobs(generator, None)


def test_an_unloaded_slot_is_the_base_again(make_generator: Any, adapters: dict[str, Path]) -> None:
    generator = make_generator(load=())
    base = logprobs(generator, None)
    generator.load("small", read_lora(adapters["small"]))
    small = logprobs(generator, "small")
    assert generator.unload("small") is True
    generator.load("large", read_lora(adapters["large"]))
    generator.load("small", read_lora(adapters["small"]))
    assert logprobs(generator, "small") == pytest.approx(small, abs=1e-6)
    assert logprobs(generator, None) == base


def spoiled(weights: Any, kind: str) -> Any:
    path = next(iter(weights.layers))
    a, b = weights.layers[path]
    if kind == "shape":
        weights.layers[path] = (a[:, :-1], b)
    elif kind in ("module", "embedding"):
        other = {"module": "model.layers.9.self_attn.q_proj", "embedding": "model.embed_tokens"}[kind]
        weights.layers[other], weights.scaling[other] = weights.layers.pop(path), weights.scaling.pop(path)
    return weights


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("shape", "goes from 64 to"),
        ("module", "the base has no module 'model.layers.9"),
        ("embedding", "cannot carry such an adapter"),
        ("rank", "rank 16 is above the limit of 8"),
        ("twice", "loaded already"),
    ],
)
def test_a_bad_adapter_is_refused_and_harms_nobody(
    make_generator: Any, adapters: dict[str, Path], kind: str, reason: str
) -> None:
    generator = make_generator(load=("small",), max_rank=8)
    before = logprobs(generator, "small"), logprobs(generator, None)
    name = {"twice": "small"}.get(kind, "bad")
    folder = adapters["large" if kind == "rank" else "attention"]
    with pytest.raises(AdapterError, match=reason):
        generator.load(name, spoiled(read_lora(folder), kind))
    assert generator.adapters.ids() == ["small"]
    assert generator.adapters.free == 7
    assert (logprobs(generator, "small"), logprobs(generator, None)) == before


def test_a_load_that_fails_halfway_leaves_nothing(
    make_generator: Any, adapters: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cairn.generation.slots import SlotLinear

    generator = make_generator(load=("small",))
    before = logprobs(generator, "small"), logprobs(generator, None)
    write, calls = SlotLinear.write, []

    def failing(self: Any, *args: Any) -> None:
        calls.append(1)
        if len(calls) == 5:
            raise MemoryError
        write(self, *args)

    monkeypatch.setattr(SlotLinear, "write", failing)
    with pytest.raises(MemoryError):
        generator.load("large", read_lora(adapters["large"]))
    monkeypatch.undo()
    assert generator.adapters.ids() == ["small"]
    stacks = [m.stacks for m in generator.model.modules() if isinstance(m, SlotLinear) and m.stacks is not None]
    assert stacks
    assert all(int(torch.count_nonzero(stack[2])) == 0 for pair in stacks for stack in pair)
    assert (logprobs(generator, "small"), logprobs(generator, None)) == before


def test_idle_adapters_are_listed_by_last_use(make_generator: Any) -> None:
    generator = make_generator(load=("small", "large", "rslora"))
    generator.generate([ask("small")])
    number = generator.submit(ask("large"))
    assert generator.adapters.idle() == ["rslora", "small"]
    generator.cancel(number)
    assert generator.adapters.idle() == ["rslora", "small", "large"]


def test_memory_follows_the_largest_resident_rank(make_generator: Any, adapters: dict[str, Path]) -> None:
    from cairn.generation.slots import SlotLinear

    def width(generator: Any) -> set[int]:
        found = [m.stacks for m in generator.model.modules() if isinstance(m, SlotLinear)]
        return {pair[0].shape[2] for pair in found if pair is not None}

    generator = make_generator(load=("small", "attention"))
    assert width(generator) == {8}
    generator.load("large", read_lora(adapters["large"]))
    assert width(generator) == {16}
    generator.unload("large")
    generator.unload("attention")
    generator.load("attention", read_lora(adapters["attention"]))
    assert width(generator) == {8}
