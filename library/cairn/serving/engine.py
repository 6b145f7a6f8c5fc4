"""One thread owns the Generator; everything else talks to it through a queue.

Torch work on the asyncio thread would block health checks and token streams, and two threads in one model give wrong
tokens. Between steps the thread takes what came in: new requests, cancellations, calls. Adapters that a request
brings along are put into a slot first; when all are taken, the least recently used idle one leaves, and when none is
idle the request waits without holding up those that need no slot.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cairn.errors import CairnError
from cairn.generation.adapters import Resident
from cairn.generation.generator import Generator
from cairn.generation.request import Event, Request

T = TypeVar("T")

SLOT_WAIT_S = 0.05


@dataclass(eq=False)
class _Ticket:
    """A request on its way: its adapter's weights, and where its events go."""

    request: Request
    weights: Any
    loop: asyncio.AbstractEventLoop
    events: asyncio.Queue[Event | BaseException] = field(default_factory=asyncio.Queue)
    number: int | None = None

    def send(self, item: Event | BaseException) -> None:
        """From the engine's thread to the asker's loop."""
        self.loop.call_soon_threadsafe(self.events.put_nowait, item)


class Engine:
    """The thread. `close` ends it."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator
        self.failure: BaseException | None = None
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._pending: list[_Ticket] = []
        self._running: dict[int, _Ticket] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="cairn-engine", daemon=True)
        self._thread.start()

    async def stream(self, request: Request, weights: Any = None) -> AsyncIterator[list[Event]]:
        """The events of a request, as many at a time as have come; leaving early cancels it.

        `weights` (LoraWeights or AdapterChanges) are loaded under `request.adapter` unless it is resident. UserError refuses it.
        """
        ticket = _Ticket(request, weights, asyncio.get_running_loop())
        self._post(lambda: self._pending.append(ticket))
        try:
            while True:
                events = [_raised(await ticket.events.get())]
                while not ticket.events.empty():
                    events.append(_raised(ticket.events.get_nowait()))
                yield events
                if events[-1].finish:
                    return
        finally:
            self._inbox.put(lambda: self._cancel(ticket))

    async def call(self, function: Callable[[Generator], T]) -> T:
        """`function(generator)` in the engine's thread, between steps."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            try:
                value = function(self.generator)
            except BaseException as error:
                loop.call_soon_threadsafe(_settle, future, None, error)
            else:
                loop.call_soon_threadsafe(_settle, future, value, None)

        self._post(run)
        return await future

    @asynccontextmanager
    async def holding(self, adapter_id: str | None, weights: Any) -> AsyncIterator[Resident]:
        """The adapter in its slot while the block makes calls with it; waits for a slot. None is the base."""
        while (resident := await self.call(lambda generator: _held(generator, adapter_id, weights))) is None:
            await asyncio.sleep(SLOT_WAIT_S)
        try:
            yield resident
        finally:
            await self.call(lambda generator: generator.adapters.release(resident))

    def close(self) -> None:
        """Stop after the step that runs."""
        self._inbox.put(None)
        self._thread.join()

    def _post(self, message: Callable[[], None]) -> None:
        if self.failure is not None:
            raise CairnError(f"the engine has stopped: {self.failure!r}", next_step="the replica is being restarted")
        self._inbox.put(message)

    def _work(self) -> None:
        try:
            while not self._closed:
                self._receive()
                self._place_pending()
                for event in self.generator.step():
                    self._deliver(event)
        except BaseException as error:
            self.failure = error
            for ticket in (*self._pending, *self._running.values()):
                ticket.send(CairnError(f"the engine has stopped: {error!r}"))

    def _receive(self) -> None:
        """Everything in the inbox; sleeps there when there is nothing to compute."""
        wait = not self.generator.busy
        while True:
            try:
                message = self._inbox.get(block=wait)
            except queue.Empty:
                return
            if message is None:
                self._closed = True
                return
            message()
            wait = False

    def _place_pending(self) -> None:
        self._pending = [ticket for ticket in self._pending if not self._place(ticket)]

    def _place(self, ticket: _Ticket) -> bool:
        """Submit the request, its adapter first; False when it must wait for a slot."""
        try:
            if ticket.request.adapter is not None and not make_resident(
                self.generator, ticket.request.adapter, ticket.weights
            ):
                return False
            ticket.number = self.generator.submit(ticket.request)
            self._running[ticket.number] = ticket
        except CairnError as error:
            ticket.send(error)
        return True

    def _deliver(self, event: Event) -> None:
        ticket = self._running.get(event.request_id)
        if ticket is None:
            return
        if event.finish:
            del self._running[event.request_id]
        if ticket.loop.is_closed():
            self.generator.cancel(event.request_id)
            return
        ticket.send(event)

    def _cancel(self, ticket: _Ticket) -> None:
        if ticket in self._pending:
            self._pending.remove(ticket)
        elif ticket.number in self._running:
            del self._running[ticket.number]
            self.generator.cancel(ticket.number)


def make_resident(generator: Generator, adapter_id: str, weights: Any) -> bool:
    """Load the adapter unless it is there; an idle one makes room. False when every slot is in use just now."""
    adapters = generator.adapters
    if adapter_id in adapters.ids():
        return True
    if not adapters.free:
        idle = adapters.idle()
        if not idle:
            return False
        adapters.check(adapter_id, weights)
        adapters.unload(idle[0])
    adapters.load(adapter_id, weights)
    return True


def _held(generator: Generator, adapter_id: str | None, weights: Any) -> Resident | None:
    if adapter_id is not None and not make_resident(generator, adapter_id, weights):
        return None
    return generator.adapters.acquire(adapter_id)


def _raised(item: Event | BaseException) -> Event:
    if isinstance(item, BaseException):
        raise item
    return item


def _settle(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
