"""The engine thread: slots for adapters that come with requests, cancellation, and what happens when it dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import build_model, build_tokenizer

from cairn.adapters.files import read_lora
from cairn.errors import AdapterError, CairnError
from cairn.generation.generator import Generator
from cairn.generation.request import Event, Request
from cairn.serving.engine import Engine

pytestmark = pytest.mark.unit

TOKENS = tuple(build_tokenizer()("hello")["input_ids"])


@pytest.fixture
def engine() -> Iterator[Engine]:
    """Over the tiny model, with one slot for adapters."""
    engine = Engine(Generator(build_model(), build_tokenizer(), adapter_slots=1, max_rank=8))
    yield engine
    engine.close()


def ask(adapter: str | None = None, count: int = 5) -> Request:
    return Request(TOKENS, adapter=adapter, max_tokens=count, ignore_eos=True)


async def tokens_of(stream: AsyncIterator[list[Event]]) -> list[int | None]:
    return [event.token async for events in stream for event in events]


def test_a_request_waits_for_a_slot_and_the_base_does_not(engine: Engine, folders: dict[str, Path]) -> None:
    weights = read_lora(folders["small"])
    order: list[str] = []

    async def run(label: str, adapter: str | None, count: int) -> None:
        assert len(await tokens_of(engine.stream(ask(adapter, count), weights if adapter else None))) == count
        order.append(label)

    async def all_three() -> None:
        await asyncio.gather(run("first", "a#1", 120), run("second", "b#1", 5), run("base", None, 5))

    asyncio.run(all_three())
    assert order == ["base", "first", "second"]
    assert engine.generator.adapters.ids() == ["b#1"], "the idle one made room"


def test_a_bad_adapter_costs_no_good_one_its_slot(engine: Engine, folders: dict[str, Path]) -> None:
    async def run() -> None:
        await tokens_of(engine.stream(ask("good"), read_lora(folders["small"])))
        with pytest.raises(AdapterError, match="rank 16 is above the limit of 8"):
            await tokens_of(engine.stream(ask("bad"), read_lora(folders["large"])))

    asyncio.run(run())
    assert engine.generator.adapters.ids() == ["good"]


def test_leaving_a_stream_cancels_it(engine: Engine) -> None:
    async def run() -> tuple[int, int]:
        stream = engine.stream(ask(count=400))
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        seen = await engine.call(lambda generator: (generator.running, generator.waiting))
        assert len(await tokens_of(engine.stream(ask()))) == 5
        return seen

    assert asyncio.run(run()) == (0, 0)


def test_errors_of_calls_come_back(engine: Engine) -> None:
    def fail(_: Generator) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(engine.call(fail))
    assert asyncio.run(engine.call(lambda generator: generator.running)) == 0


def test_a_dead_engine_tells_everyone() -> None:
    engine = Engine(Generator(build_model(), build_tokenizer()))

    async def run() -> None:
        stream = engine.stream(ask(count=400))
        await anext(stream)
        await engine.call(_break_step)
        with pytest.raises(CairnError, match="the engine has stopped"):
            await tokens_of(stream)
        with pytest.raises(CairnError, match="the engine has stopped"):
            await tokens_of(engine.stream(ask()))

    asyncio.run(run())
    assert isinstance(engine.failure, ZeroDivisionError)


def _break_step(generator: Generator) -> None:
    def step() -> list[Event]:
        raise ZeroDivisionError

    replaced: Callable[[], Any] = step
    generator.step = replaced  # type: ignore[method-assign]
