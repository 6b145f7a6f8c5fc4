"""The HTTP side: OpenAI's endpoints, keys, shapes and errors. It holds no model.

It reads `model` from the body and passes the call on; an answer streams back as server-sent events or is collected.
A client that leaves cancels its calls in the replicas.

Serve pickles the routes by value where the class is decorated: what they use is defined above the class, and their
annotations are real objects, not strings (no `from __future__ import annotations` here).
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from ray import serve

from cairn.serving.access import api_key, check_key
from cairn.serving.answers import usage
from cairn.serving.auto import AUTO
from cairn.serving.bodies import (
    MOST_CHOICES,
    ChatBody,
    CompletionBody,
    LoadBody,
    SamplingBody,
    ScoreBody,
    UnloadBody,
    parse_body,
)
from cairn.serving.conversation import collect, sse
from cairn.serving.refusal import Refusal, RefusedError, bad_request
from cairn.serving.replica import Call, Scored
from cairn.serving.streams import Streams
from cairn.serving.web import add_error_shapes, read_json

app = add_error_shapes(FastAPI(title="Cairn inference", docs_url=None, redoc_url=None, openapi_url=None))


def _sampling(body: SamplingBody) -> dict[str, Any]:
    return {"temperature": body.temperature, "top_p": body.top_p, "top_k": body.top_k, "stop": body.stops}


def _seed(seed: int | None, copy: int) -> int | None:
    """Copies of one prompt differ, and each is repeatable."""
    return None if seed is None else seed + copy


def _prompt(prompt: str | list[int]) -> dict[str, Any]:
    return {"text": prompt} if isinstance(prompt, str) else {"tokens": tuple(prompt)}


def _raise(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise RefusedError(refusal)


@serve.ingress(app)
class Gateway:
    """`replica` is the handle of the deployment that holds the model."""

    def __init__(self, replica: Any, key: str | None, base_name: str) -> None:
        self.replica = replica
        self.key = api_key(key)
        self.base_name = base_name

    @app.get("/health")
    async def health(self) -> dict[str, Any]:
        """Whether the engine answers; open to all, so it tells nothing else."""
        await self.replica.load.remote()
        return {"status": "ok", "model": self.base_name}

    @app.get("/v1/models")
    async def models(self, request: Request) -> dict[str, Any]:
        """The base, adapters, versions, aliases and loaded names."""
        self._admit(request)
        return {"object": "list", "data": await self.replica.models.remote()}

    @app.get("/v1/models/{model:path}")
    async def model(self, model: str, request: Request) -> dict[str, Any]:
        """One of them."""
        self._admit(request)
        for entry in await self.replica.models.remote():
            if entry["id"] == model:
                return dict(entry)
        raise RefusedError(Refusal(404, f"the model '{model}' does not exist", param="model", code="model_not_found"))

    @app.post("/v1/completions")
    async def completions(self, request: Request) -> Response:
        """Text or token ids in, text out."""
        self._admit(request)
        body = parse_body(await read_json(request), CompletionBody)
        if not 0 < len(body.prompts) * body.n <= MOST_CHOICES:
            raise bad_request(f"prompts × n must be from 1 to {MOST_CHOICES}", param="prompt")
        if body.model == AUTO and len(body.prompts) > 1:
            raise bad_request("'auto' chooses for one prompt; send them one by one", param="prompt")
        shared = {**_sampling(body), "max_tokens": body.max_tokens, "logprobs": body.logprobs}
        calls = [
            Call(body.model, {**shared, "seed": _seed(body.seed, copy)}, **_prompt(prompt))
            for prompt in body.prompts
            for copy in range(body.n)
        ]
        return await self._answer(body, calls, chat=False)

    @app.post("/v1/chat/completions")
    async def chat_completions(self, request: Request) -> Response:
        """Messages in, the assistant's next message out."""
        self._admit(request)
        body = parse_body(await read_json(request), ChatBody)
        if body.top_logprobs is not None and not body.logprobs:
            raise bad_request("top_logprobs needs logprobs: true", param="top_logprobs")
        most = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
        logprobs = (body.top_logprobs or 0) if body.logprobs else None
        shared = {**_sampling(body), "max_tokens": most, "logprobs": logprobs}
        messages = tuple(message.for_template() for message in body.messages)
        calls = [Call(body.model, {**shared, "seed": _seed(body.seed, i)}, messages=messages) for i in range(body.n)]
        return await self._answer(body, calls, chat=True)

    @app.post("/v1/score")
    async def score(self, request: Request) -> dict[str, Any]:
        """Conversations in, what a reward adapter gives to their last answers out."""
        self._admit(request)
        body = parse_body(await read_json(request), ScoreBody)
        asked = tuple(tuple(message.for_template() for message in messages) for messages in body.asked)
        found: Scored | Refusal = await self.replica.score.remote(body.model, asked)
        if isinstance(found, Refusal):
            raise RefusedError(found)
        return {
            "object": "scores",
            "model": found.label,
            "scores": found.scores,
            "usage": usage(found.prompt_tokens, 0),
        }

    @app.post("/v1/load_lora_adapter")
    async def load_lora_adapter(self, request: Request) -> dict[str, str]:
        """Serve a PEFT directory under a name, while requests run."""
        self._admit(request)
        body = parse_body(await read_json(request), LoadBody)
        _raise(await self.replica.load_adapter.remote(body.lora_name, body.lora_path))
        return {"status": "loaded", "lora_name": body.lora_name}

    @app.post("/v1/unload_lora_adapter")
    async def unload_lora_adapter(self, request: Request) -> dict[str, str]:
        """Stop serving a name; what runs with it finishes."""
        self._admit(request)
        body = parse_body(await read_json(request), UnloadBody)
        _raise(await self.replica.unload_adapter.remote(body.lora_name))
        return {"status": "unloaded", "lora_name": body.lora_name}

    def _admit(self, request: Request) -> None:
        check_key(request.headers.get("authorization"), self.key)

    async def _answer(self, body: SamplingBody, calls: Sequence[Call], *, chat: bool) -> Response:
        handle = self.replica.options(stream=True)
        streams = await Streams.open([handle.generate.remote(call) for call in calls])
        if not body.stream:
            return JSONResponse(await collect(streams, copies=body.n, chat=chat))
        include_usage = body.stream_options is not None and body.stream_options.include_usage
        events: AsyncIterator[str] = sse(streams, copies=body.n, chat=chat, include_usage=include_usage)
        return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
