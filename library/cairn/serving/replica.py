"""One copy of the base, many adapters, one engine thread; the gateway calls it, HTTP stays outside.

`generate` yields first an Opening or a Refusal, then lists of events as they come. Being cancelled (a client that
left) ends the request in the engine at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from cairn.adapters.files import chat_template_of
from cairn.data.batch import Batch
from cairn.errors import CairnError, UserError
from cairn.evaluation.rewards import Places, answer_batches, score_batch
from cairn.generation.adapters import Resident
from cairn.generation.generator import Generator
from cairn.generation.request import Event, Request
from cairn.records import Conversation, Message, Source
from cairn.serving.access import contained
from cairn.serving.auto import AUTO, Auto
from cairn.serving.base import load_base
from cairn.serving.catalogue import Served
from cairn.serving.engine import Engine, make_resident
from cairn.serving.refusal import Refusal, refusal_of
from cairn.serving.settings import InferenceSettings

TOKENS_PER_TURN = 1024
"""Tokens scored between two steps of those that wait for text."""


@dataclass(frozen=True)
class Call:
    """One answer wanted from `model`: to messages, a text, or token ids. `sampling` are fields of `Request`."""

    model: str
    sampling: dict[str, Any]
    messages: tuple[dict[str, str], ...] = ()
    text: str | None = None
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True)
class Opening:
    """What will answer, and how long the prompt is."""

    label: str
    prompt_tokens: int


@dataclass(frozen=True)
class Scored:
    """What scored, a number for each conversation, and how many tokens they are together."""

    label: str
    scores: list[float]
    prompt_tokens: int


class Replica:
    """Serve's actor around an Engine."""

    def __init__(self, settings: InferenceSettings) -> None:
        self.settings = settings
        base = load_base(settings)
        self.tokenizer, self.catalogue = base.tokenizer, base.catalogue
        self.auto = Auto(settings.router, settings.storage, base.catalogue)
        self.engine = Engine(
            Generator(
                base.model,
                base.tokenizer,
                adapter_slots=settings.adapter_slots,
                max_rank=settings.max_rank,
                max_running=settings.max_running,
                max_length=settings.max_length,
                prefill_tokens=settings.prefill_tokens,
            )
        )

    async def generate(self, call: Call) -> AsyncIterator[Opening | Refusal | list[Event]]:
        """Answer one call, step by step."""
        try:
            model = await self._routed(call) if call.model == AUTO else call.model
            served = await asyncio.to_thread(self.catalogue.resolve, model)
            weights = await self.catalogue.weights(served)
            prompt = tuple(await asyncio.to_thread(self._prompt, call, served))
            request = Request(prompt, adapter=served.adapter_id, **call.sampling)
            opening: Opening | None = Opening(served.label, len(prompt))
            async for events in self.engine.stream(request, weights):
                if opening:
                    yield opening
                    opening = None
                yield events
        except CairnError as error:
            yield refusal_of(error)

    async def score(self, model: str, conversations: Sequence[Sequence[dict[str, str]]]) -> Scored | Refusal:
        """What the reward adapter `model` gives to the last answer of each conversation, a batch between two steps."""
        try:
            served = await asyncio.to_thread(self.catalogue.resolve, model)
            if served.path is None:
                raise UserError(
                    "it speaks and gives no score", where="model", next_step="name a result of the stage 'reward'"
                )
            weights = await self.catalogue.weights(served, scores=True)
            batches = await asyncio.to_thread(self._batches, conversations, served)
            scores = [0.0] * len(conversations)
            async with self.engine.holding(served.adapter_id, weights) as resident:
                for places, batch in batches:
                    found = await self.engine.call(partial(_scores, resident, weights.head, batch))
                    for place, score in zip(places, found, strict=True):
                        scores[place] = score
        except CairnError as error:
            return refusal_of(error)
        return Scored(served.label, scores, sum(int((batch.segments > 0).sum()) for _, batch in batches))

    async def models(self) -> list[dict[str, Any]]:
        """Every name on offer."""
        return await asyncio.to_thread(lambda: [*self.catalogue.models(), *self.auto.models()])

    async def load_adapter(self, name: str, path: str) -> Refusal | None:
        """Load a folder under a name, here at once and in other replicas when they are asked; None when done."""
        try:
            folder = contained(path, self.settings.adapter_roots, where="lora_path")
            adapter = await asyncio.to_thread(self.catalogue.describe, name, folder)
            served = Served(name, f"{name}#{adapter.sha256[:16]}", folder, adapter.sha256)
            weights = await self.catalogue.weights(served)
            await self.engine.call(lambda generator: _try_load(generator, str(served.adapter_id), weights))
            await asyncio.to_thread(self.catalogue.loaded.add, adapter)
        except CairnError as error:
            return refusal_of(error)
        return None

    async def unload_adapter(self, name: str) -> Refusal | None:
        """Forget a loaded name; requests in flight finish with it. None when done."""
        try:
            adapter = await asyncio.to_thread(self.catalogue.loaded.remove, name)
            adapter_id = f"{name}#{adapter.sha256[:16]}"
            await self.engine.call(lambda generator: _forget(generator, adapter_id))
        except CairnError as error:
            return refusal_of(error)
        return None

    async def load(self) -> dict[str, Any]:
        """What the engine does just now."""
        return await self.engine.call(
            lambda generator: {
                "running": generator.running,
                "waiting": generator.waiting,
                "adapters": generator.adapters.ids(),
                "free_slots": generator.adapters.free,
            }
        )

    def check_health(self) -> None:
        """Serve replaces a replica whose engine has died."""
        if self.engine.failure is not None:
            raise RuntimeError("the engine thread has died") from self.engine.failure

    async def _routed(self, call: Call) -> str:
        """The model that the service's router chooses for the prompt."""
        router = await asyncio.to_thread(self.auto.router)
        prompt = tuple(await asyncio.to_thread(self._tokens, call, router.template))
        generator = self.engine.generator
        Request(prompt, **call.sampling).check(vocabulary=generator.vocabulary, max_length=generator.max_length)
        return await self.engine.call(partial(self.auto.choose, router, prompt))

    def _prompt(self, call: Call, served: Served) -> list[int]:
        return self._tokens(call, chat_template_of(served.path) if call.messages and served.path else None)

    def _tokens(self, call: Call, template: str | None) -> list[int]:
        """Messages by `template`, else the model's own."""
        if call.messages:
            return self._templated(call.messages, template)
        if call.text is not None:
            return list(self.tokenizer(call.text)["input_ids"])
        return list(call.tokens)

    def _batches(self, conversations: Sequence[Sequence[dict[str, str]]], served: Served) -> list[tuple[Places, Batch]]:
        """As the reward stage lays answers out, by the adapter's chat template."""
        assert served.path is not None
        tokenizer = copy(self.tokenizer)
        tokenizer.chat_template = chat_template_of(served.path) or tokenizer.chat_template
        if not tokenizer.chat_template:
            raise _untemplated("publish the adapter with the template that it was trained with")
        asked = [
            Conversation(Source("messages", number), tuple(Message(m["role"], m["content"]) for m in messages))
            for number, messages in enumerate(conversations, start=1)
        ]
        window = self.engine.generator.max_length
        return answer_batches(tokenizer, asked, window=window, batch_tokens=TOKENS_PER_TURN)

    def _templated(self, messages: tuple[dict[str, str], ...], adapters: str | None) -> list[int]:
        """By the adapter's chat template, else the model's own; what it refuses is the client's to mend."""
        if not (adapters or self.tokenizer.chat_template):
            raise _untemplated("use /v1/completions")
        try:
            rendered = self.tokenizer.apply_chat_template(
                list(messages), chat_template=adapters, add_generation_prompt=True, tokenize=True, return_dict=True
            )
        except Exception as error:  # a template is a program of the model's author and raises what it likes
            raise UserError(
                f"the model's chat template refuses these messages: {error}",
                where="messages",
                next_step="check roles and their order",
            ) from error
        return list(rendered["input_ids"])


def _untemplated(next_step: str) -> UserError:
    return UserError("this model has no chat template", where="messages", next_step=next_step)


def _scores(resident: Resident, head: torch.Tensor, batch: Batch, generator: Generator) -> list[float]:
    with generator.adapters.routing.using([resident.slot], rank=resident.rank, device=generator.device):
        found: list[float] = score_batch(generator.model, batch, head=head).tolist()
    return found


def _try_load(generator: Generator, adapter_id: str, weights: Any) -> None:
    """Putting it into the engine is the check; with every slot in use the check alone must do for now."""
    if not make_resident(generator, adapter_id, weights):
        generator.adapters.check(adapter_id, weights)


def _forget(generator: Generator, adapter_id: str) -> None:
    if adapter_id in generator.adapters.ids():
        generator.unload(adapter_id)
