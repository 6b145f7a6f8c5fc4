"""The Generator: one model, many adapters, many requests at once, one step at a time. No Ray, no HTTP.

A step decodes one token for every running request, then reads a chunk of waiting prompts; whoever finished reading
has its first token at the end of the step. Requests join and leave between steps, so nobody waits for another's end,
and a long prompt delays the others by at most one chunk. Not thread-safe: one thread owns a Generator.

The answer of a request does not depend on its neighbours: own positions, own mask, own slot, own random generator.
Cost: keys and values for `max_running` × the longest running request; a prompt chunk of `prefill_tokens` a step.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from cairn.adapters.linear_change import AdapterChanges
from cairn.adapters.soft_prompts import prompt_of
from cairn.errors import UserError
from cairn.generation import scoring
from cairn.generation.adapters import ResidentAdapters
from cairn.generation.inputs import layer_kinds, placement, step_inputs, window_of
from cairn.generation.key_values import KeyValuePool, StepCache
from cairn.generation.request import Completion, Event, Request, TokenLogprob
from cairn.generation.row import Row
from cairn.generation.sampling import choose
from cairn.models.invocation import invocation_of, looking
from cairn.models.kernels.frozen_linear import use_frozen_linears
from cairn.models.load import position_limit
from cairn.models.unwrap import base_of, prompted

MOST_POSITIONS = 2048
OWN = "the model's own virtual tokens"


class Generator:
    """Continuous batching over `model`, which is frozen, in evaluation mode, and changed in place: its linears. Virtual
    tokens that it has (`cairn.models.virtual_tokens`) stand before every request without an adapter, and layers of its own
    that wait for an invocation (`cairn.models.invocation`) look for it in the prompt.

    `max_length` is the window in tokens, prompt and answer; by default the model's own limit, at most 2048.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        adapter_slots: int = 8,
        max_rank: int = 64,
        max_running: int = 16,
        max_length: int | None = None,
        prefill_tokens: int = 256,
    ) -> None:
        own, model = prompt_of(model), base_of(model) if prompted(model) is not None else model
        self.model, self.tokenizer = model, tokenizer
        self.kinds, self.window = layer_kinds(model), window_of(model)
        use_frozen_linears(model.eval().requires_grad_(False), training=False)
        self.max_running, self.prefill_tokens = max_running, prefill_tokens
        limit = position_limit(model.config)
        self.max_length = max_length or min(limit or MOST_POSITIONS, MOST_POSITIONS)
        slots = adapter_slots + (own is not None)
        self.adapters = ResidentAdapters(model, slots=slots, max_rank=max_rank, max_length=self.max_length)
        self._own = OWN if own is not None else None
        self._invocation = invocation_of(model)
        if own is not None:
            self.adapters.load(OWN, AdapterChanges({}, prompt=own))
        self.pool = KeyValuePool(rows=max_running, max_length=self.max_length)
        parameter = next(model.parameters())
        self.dtype, self.device = parameter.dtype, parameter.device
        self.vocabulary = int(model.get_input_embeddings().weight.shape[0])
        self.ends = end_tokens(model, tokenizer)
        self._waiting: deque[Row] = deque()
        self._rows: list[Row] = []
        self._ready = 0
        self._numbers = itertools.count(1)
        self._cancelled: list[Event] = []

    @property
    def busy(self) -> bool:
        """Whether `step` has something to do."""
        return bool(self._rows or self._waiting or self._cancelled)

    @property
    def running(self) -> int:
        """Requests that hold a row."""
        return len(self._rows)

    @property
    def waiting(self) -> int:
        """Requests that wait for a row."""
        return len(self._waiting)

    def load(self, adapter_id: str, weights: Any) -> None:
        """Make `weights` (LoraWeights) available under `adapter_id`; AdapterError leaves everything as it was."""
        self.adapters.load(adapter_id, weights)

    def unload(self, adapter_id: str) -> bool:
        """Forget the adapter; False when requests in flight still use it, which then finish with it."""
        return self.adapters.unload(adapter_id)

    def submit(self, request: Request) -> int:
        """Queue a request; its number comes back in the events. UserError or AdapterError refuses it."""
        resident = self.adapters.acquire(request.adapter or self._own)
        try:
            request.check(vocabulary=self.vocabulary, max_length=self.max_length - resident.ahead)
        except UserError:
            self.adapters.release(resident)
            raise
        awaited = resident.invocation or (self._invocation.tokens if self._invocation else ())
        row = Row(
            next(self._numbers),
            request,
            resident,
            tokenizer=self.tokenizer,
            max_length=self.max_length,
            invocation=awaited,
        )
        self._waiting.append(row)
        return row.number

    def cancel(self, number: int) -> None:
        """End a request now; the next step reports it. Unknown or finished numbers are nothing to do."""
        for row in self._waiting:
            if row.number == number:
                self._waiting.remove(row)
                self.adapters.release(row.resident)
                self._cancelled.append(Event(number, finish="cancelled"))
                return
        for row in self._rows:
            if row.number == number:
                self._leave(row)
                self._cancelled.append(Event(number, finish="cancelled"))
                return

    @torch.no_grad()
    def step(self) -> list[Event]:
        """Advance everything once; at most one token for each running request."""
        events, self._cancelled = self._cancelled, []
        if self._ready:
            events += self._forward(0, [row.next_tokens(1) for row in self._rows[: self._ready]])
        self._admit()
        chunks = self._prompt_chunks()
        if chunks:
            events += self._forward(self._ready, chunks)
        return events

    def generate(self, requests: Iterable[Request]) -> list[Completion]:
        """Answers in the order of the requests; steps until all are done."""
        numbers = [self.submit(request) for request in requests]
        collected: dict[int, list[Event]] = {number: [] for number in numbers}
        while any(not events or events[-1].finish is None for events in collected.values()):
            for event in self.step():
                if event.request_id in collected:
                    collected[event.request_id].append(event)
        return [completion(collected[number]) for number in numbers]

    def score(self, windows: Sequence[Any], *, adapter: str | None = None) -> list[list[float]]:
        """Nats of each target token of each window (`cairn.evaluation.windows`), with one adapter or the base."""
        with self.adapters.using(adapter or self._own) as model, looking(self.model, self._invocation):
            return scoring.score(model, windows)

    def _admit(self) -> None:
        while self._waiting and len(self._rows) < self.max_running:
            self._rows.append(self._waiting.popleft())
            self.pool.fill(len(self._rows) - 1, self._rows[-1].resident.prefix)

    def _prompt_chunks(self) -> list[Sequence[int]]:
        """The next chunk of each of the first rows that still read, within the budget of padded tokens."""
        reading = self._rows[self._ready :]
        if not reading:
            return []
        width = min(reading[0].unread, self.prefill_tokens)
        return [row.next_tokens(width) for row in reading[: max(1, self.prefill_tokens // width)]]

    def _forward(self, first: int, chunks: list[Sequence[int]]) -> list[Event]:
        """Run the model over neighbouring rows; an exception ends these requests and nobody else's."""
        rows = self._rows[first : first + len(chunks)]
        try:
            logits = self._logits(rows, chunks, first=first)
        except Exception as error:
            return self._fail(rows, f"{type(error).__name__}: {error}")
        for row, chunk in zip(rows, chunks, strict=True):
            row.cached += len(chunk)
        return self._sample(rows, logits)

    def _logits(self, rows: Sequence[Row], chunks: Sequence[Sequence[int]], *, first: int) -> torch.Tensor:
        """float32 [rows, vocabulary] after the last token of each chunk."""
        starts = [row.cached for row in rows]
        place = placement(chunks, starts, first=first, device=self.device)
        self.pool.reserve(place.length)
        inputs = step_inputs(
            chunks,
            starts,
            length=place.length,
            kinds=self.kinds,
            window=self.window,
            dtype=self.dtype,
            device=self.device,
        )
        slots = [row.resident.slot for row in rows]
        rank = max(row.resident.rank for row in rows)
        cache = StepCache(self.pool, place)
        active = None
        if any(row.invocation for row in rows):
            begins = torch.tensor([row.acts_from for row in rows], device=self.device)
            active = inputs["position_ids"] >= begins[:, None]
            if self._invocation is not None:
                self._invocation.mask = active
        with self.adapters.routing.using(slots, rank=rank, device=self.device, active=active):
            output = self.model(**inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
        logits: torch.Tensor = output.logits[:, -1].float()
        return logits

    def _sample(self, rows: Sequence[Row], logits: torch.Tensor) -> list[Event]:
        """A token for each row that has read its prompt, and its consequences."""
        finite = torch.isfinite(logits).all(-1).tolist()
        done = [i for i, row in enumerate(rows) if not row.unread and finite[i]]
        tokens = choose(logits[done], [rows[i].request for i in done], [rows[i].source for i in done]) if done else []
        broken = [row for row, good in zip(rows, finite, strict=True) if not good]
        events = self._fail(broken, "the logits are not finite")
        for i, token in zip(done, tokens, strict=True):
            event = rows[i].accept(token, logits[i], ends=self.ends)
            events.append(event)
            if event.finish:
                self._leave(rows[i])
            elif len(rows[i].answer) == 1:
                self._start_decoding(rows[i])
        return events

    def _fail(self, rows: Sequence[Row], reason: str) -> list[Event]:
        """End requests whose keys and values may hold infinities; nothing of them may meet a later request."""
        for row in rows:
            self.pool.clear(self._rows.index(row))
        for row in rows:
            self._leave(row)
        return [Event(row.number, finish="error", error=reason) for row in rows]

    def _start_decoding(self, row: Row) -> None:
        """Bring a row that has read its prompt to the end of the decoding rows."""
        place, target = self._rows.index(row), self._ready
        if place != target:
            other = self._rows[target]
            self.pool.swap(place, target, max(row.cached, other.cached))
            self._rows[place], self._rows[target] = other, row
        self._ready += 1

    def _leave(self, row: Row) -> None:
        """Free the row of a finished request and close the gap."""
        hole = self._rows.index(row)
        if hole < self._ready:
            self._ready -= 1
            hole = self._fill(hole, self._ready)
        self._fill(hole, len(self._rows) - 1)
        self._rows.pop()
        self.adapters.release(row.resident)

    def _fill(self, hole: int, source: int) -> int:
        """Move row `source` into the hole; the new hole is where it was."""
        if hole != source:
            self.pool.move(source, hole, self._rows[source].cached)
            self._rows[hole] = self._rows[source]
        return source


def completion(events: Sequence[Event]) -> Completion:
    """The events of one request as a whole answer."""
    logprobs: tuple[TokenLogprob, ...] = tuple(event.logprob for event in events if event.logprob)
    tokens = tuple(event.token for event in events if event.token is not None)
    last = events[-1]
    assert last.finish is not None
    return Completion(tokens, "".join(event.text for event in events), last.finish, logprobs, last.error)


def end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every token that ends an answer: the tokenizer's and those of the model's generation settings."""
    configured = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    if configured is None:
        configured = model.config.eos_token_id
    listed = configured if isinstance(configured, list | tuple) else [configured]
    return frozenset(token for token in (*listed, tokenizer.eos_token_id) if token is not None)
