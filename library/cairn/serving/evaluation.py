"""Bits per byte over HTTP: `POST /v1/bits-per-byte` with texts, or a file under an allowed root.

The same windows and sums as `cairn evaluate`. One engine thread owns the model; a request is scored some documents
at a time, so requests take turns, and one whose client has left stops at the next turn.

Serve pickles the routes by value where the class is decorated: what they use is defined above the class, and their
annotations are real objects, not strings (no `from __future__ import annotations` here).
"""

import asyncio
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from typing import Any

from fastapi import FastAPI, Request
from pydantic import Field
from ray import serve

from cairn.data.documents import read_documents
from cairn.data.sources.files import resolve
from cairn.errors import CairnError, UserError
from cairn.evaluation.aggregate import aggregate
from cairn.evaluation.bits_per_byte import DocumentScore, score_documents, totals
from cairn.generation.adapters import Resident
from cairn.generation.generator import Generator
from cairn.models.load import require_positions
from cairn.records import Document, Source
from cairn.serving.access import api_key, check_key, contained
from cairn.serving.base import load_base
from cairn.serving.bodies import Strict, parse_body
from cairn.serving.catalogue import BASE_ALIAS
from cairn.serving.engine import Engine
from cairn.serving.refusal import RefusedError, bad_request, refusal_of
from cairn.serving.settings import EvaluationSettings
from cairn.serving.web import ExactPrefix, add_error_shapes, read_json

DOCUMENTS_PER_TURN = 4

app = add_error_shapes(FastAPI(title="Cairn evaluation", docs_url=None, redoc_url=None, openapi_url=None))
app.add_middleware(ExactPrefix)


class EvaluationBody(Strict):
    """Either `texts` or `path`. `limit` and `subsets` choose among the documents of a file."""

    model: str = BASE_ALIAS
    texts: list[str] | None = None
    path: str | None = None
    window: int | None = Field(None, ge=2)
    limit: int | None = Field(None, ge=1)
    subsets: tuple[str, ...] = ()
    per_document: bool = False


def report(scores: list[DocumentScore], *, label: str, window: int, per_document: bool) -> dict[str, Any]:
    """The body of the answer: the four aggregates, the sums, the settings, on wish every document."""
    figures, sums = aggregate(scores), totals(scores)
    answer = {
        "object": "bits_per_byte",
        "model": label,
        "bits_per_byte": {
            "micro": figures.micro,
            "pile_weighted": figures.pile_weighted,
            "macro": figures.macro,
            "per_subset": figures.per_subset,
        },
        "nats": sums.nats,
        "bytes": sums.bytes,
        "tokens": sums.tokens,
        "documents": sums.documents,
        "settings": {"window": window},
    }
    return {**answer, "scores": [asdict(score) for score in scores]} if per_document else answer


def limited(documents: Iterator[Document], *, most: int) -> Iterator[Document]:
    """The documents, and an error rather than a silent cut when there are more than `most`."""
    for number, document in enumerate(documents, start=1):
        if number > most:
            raise UserError(
                f"more than {most} documents in one request", where="limit", next_step=f"set limit to at most {most}"
            )
        yield document


def _turn(generator: Generator, resident: Resident, pending: Iterator[DocumentScore]) -> list[DocumentScore]:
    """The next few documents, with the adapter on."""
    with generator.adapters.routing.using([resident.slot], rank=resident.rank, device=generator.device):
        return list(islice(pending, DOCUMENTS_PER_TURN))


@serve.ingress(app)
class Evaluation:
    """Serve's actor around an Engine that only scores."""

    def __init__(self, settings: EvaluationSettings) -> None:
        self.settings = settings
        self.key = api_key(settings.api_key)
        base = load_base(settings)
        require_positions(base.model.config, settings.window, where="args.window")
        self.tokenizer, self.catalogue = base.tokenizer, base.catalogue
        slots, rank = settings.adapter_slots, settings.max_rank
        self.engine = Engine(Generator(base.model, base.tokenizer, adapter_slots=slots, max_rank=rank, max_running=1))

    @app.post("/")
    async def bits_per_byte(self, request: Request) -> dict[str, Any]:
        """Score and aggregate."""
        check_key(request.headers.get("authorization"), self.key)
        body = parse_body(await read_json(request), EvaluationBody)
        try:
            return await self._report(body, request)
        except CairnError as error:
            raise RefusedError(refusal_of(error)) from error

    def check_health(self) -> None:
        """Serve replaces a replica whose engine has died."""
        if self.engine.failure is not None:
            raise RuntimeError("the engine thread has died") from self.engine.failure

    async def _report(self, body: EvaluationBody, request: Request) -> dict[str, Any]:
        window = body.window or self.settings.window
        require_positions(self.engine.generator.model.config, window, where="window")
        documents = self._documents(body)
        served = await asyncio.to_thread(self.catalogue.resolve, body.model)
        weights = await self.catalogue.weights(served)
        async with self.engine.holding(served.adapter_id, weights) as resident:
            scores = await self._score(resident, documents, window, request)
        return report(scores, label=served.label, window=window, per_document=body.per_document or bool(body.texts))

    def _documents(self, body: EvaluationBody) -> Iterator[Document]:
        if (body.texts is None) == (body.path is None):
            raise bad_request("give either texts or path", param="texts")
        if body.texts is not None:
            return self._texts(body.texts)
        roots = self.settings.data_roots
        files = resolve([contained(str(body.path), roots, where="path")])
        for file in files:  # a folder may hold a link to somewhere else
            contained(str(file.path), roots, where="path")
        documents = read_documents(files, limit=body.limit, subsets=body.subsets)
        return limited(documents, most=self.settings.max_documents)

    def _texts(self, texts: list[str]) -> Iterator[Document]:
        try:
            size = sum(len(text.encode()) for text in texts)
        except UnicodeEncodeError:
            raise bad_request("a text has a lone surrogate, which is no text", param="texts") from None
        if size > self.settings.max_text_bytes:
            most = self.settings.max_text_bytes
            raise bad_request(f"{size} bytes of text, at most {most} at once; split them, or use path", param="texts")
        documents = [Document(Source("texts", number), text) for number, text in enumerate(texts, start=1)]
        return limited(iter(documents), most=self.settings.max_documents)

    async def _score(
        self, resident: Resident, documents: Iterator[Document], window: int, request: Request
    ) -> list[DocumentScore]:
        found: list[DocumentScore] = []
        model = resident.over(self.engine.generator.model)
        pending = score_documents(model, self.tokenizer, documents, window=window)
        while new := await self.engine.call(lambda generator: _turn(generator, resident, pending)):
            found += new
            if await request.is_disconnected():
                raise UserError("the client has left")
        return found
