"""Several answers at once, from the replicas to one HTTP response, merged in the order in which their parts come."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from cairn.generation.request import Event
from cairn.serving.refusal import Refusal, RefusedError
from cairn.serving.replica import Opening


class Streams:
    """The answers to one HTTP request, all accepted. Iterate once; leaving early cancels what still runs."""

    def __init__(self, responses: Sequence[Any], openings: Sequence[Opening]) -> None:
        self.responses = responses
        self.openings = openings

    @classmethod
    async def open(cls, responses: Sequence[Any]) -> Streams:
        """Wait until each has begun; a refusal of one refuses all, while the status can still say so."""
        try:
            openings = await asyncio.gather(*(anext(response) for response in responses))
            for opening in openings:
                if isinstance(opening, Refusal):
                    raise RefusedError(opening)
        except BaseException:
            _cancel(responses)
            raise
        return cls(responses, openings)

    @property
    def label(self) -> str:
        """The model that answers, as resolved."""
        return self.openings[0].label

    async def __aiter__(self) -> AsyncIterator[tuple[int, list[Event]]]:
        """(choice, its new events); raises RefusedError when a request fails on the way."""
        parts: asyncio.Queue[tuple[int, Any]] = asyncio.Queue()
        tasks = [asyncio.create_task(_pump(i, response, parts)) for i, response in enumerate(self.responses)]
        running = len(tasks)
        try:
            while running:
                choice, part = await parts.get()
                if part is None:
                    running -= 1
                elif isinstance(part, BaseException):
                    raise part
                else:
                    yield choice, _checked(part)
        finally:
            for task in tasks:
                task.cancel()
            _cancel(self.responses)


async def _pump(choice: int, response: Any, parts: asyncio.Queue[tuple[int, Any]]) -> None:
    try:
        async for part in response:
            parts.put_nowait((choice, part))
        parts.put_nowait((choice, None))
    except Exception as error:
        parts.put_nowait((choice, error))


def _checked(part: Any) -> list[Event]:
    if isinstance(part, Refusal):
        raise RefusedError(part)
    events: list[Event] = part
    if events[-1].finish == "error":
        raise RefusedError(Refusal(500, f"generation failed: {events[-1].error}", kind="server_error"))
    return events


def _cancel(responses: Sequence[Any]) -> None:
    for response in responses:
        with contextlib.suppress(RuntimeError):  # one that was never sent has nothing to cancel
            response.cancel()
