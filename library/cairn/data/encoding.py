"""Records to samples with the model's own tokenizer and chat template.

A document becomes consecutive windows and loses nothing. A conversation becomes one sample whose tokens are those of
`tokenizer.apply_chat_template`; only the assistant's tokens weigh, from the first of the answer through its end of
turn: what the template marks as generated where it marks anything, else what `AnswerFinder` finds. What does not fit is
dropped or cut by a named policy (`cairn.data.truncation`), with a reason. Cost: one rendering of a conversation in the
common case (`cairn.data.outlines`), and the tokenizer, which takes many texts at once and uses every core.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import msgspec
import numpy as np

from cairn.data.answers import AnswerNotFound, Span
from cairn.data.dialogue import Dialogue, Marked
from cairn.data.drops import CutReason, Dropped, DropReason
from cairn.data.rendering import Messages, TemplateRefused
from cairn.data.rows import Sample
from cairn.data.truncation import Encode, Truncation, shorten
from cairn.errors import ModelError
from cairn.records import Conversation, Document

TrainOn = Literal["all", "last", "chosen"]

BATCH, DOCUMENTS = 1024, 64
"""Conversations and documents tokenised at once: a fifth faster than 256, a fifth faster than one. What is in flight is
bounded by a chunk's characters."""


@dataclass(frozen=True)
class Rendered:
    """A conversation's text and its answers' spans with their weights."""

    conversation: Conversation
    text: str
    spans: Sequence[Span]
    weights: Sequence[float]

    @property
    def trained_bytes(self) -> int:
        """UTF-8 bytes of the answers that weigh."""
        trained = [span for span, weight in zip(self.spans, self.weights, strict=True) if weight > 0]
        return sum(len(self.text[span.start : span.content_end].encode()) for span in trained)


class Encoder:
    """`sequence_length` is the most positions of a sample. `cuts` counts what truncation took.

    `train_on`: every answer by its message's weight, or of these only the conversation's last; of a comparison the
    chosen one (`cairn.data.conversion`).

    `tokenizer` is a fast transformers tokenizer (its character offsets say which bytes a token stands for); a slow one
    is a ModelError, as is one without an end-of-sequence token.
    """

    def __init__(
        self,
        tokenizer: Any,
        sequence_length: int,
        truncation: Truncation = "drop",
        *,
        train_on: TrainOn = "all",
    ) -> None:
        where = str(getattr(tokenizer, "name_or_path", ""))
        if not getattr(tokenizer, "is_fast", False):
            raise ModelError("the tokenizer gives no character offsets", where=where, next_step="add a tokenizer.json")
        if tokenizer.eos_token_id is None:
            raise ModelError("the tokenizer has no end-of-sequence token", where=where, next_step="set eos_token in it")
        self.tokenizer = tokenizer
        self.sequence_length = sequence_length
        self.truncation: Truncation = truncation
        self.cuts: Counter[CutReason] = Counter()
        self.train_on: TrainOn = train_on
        self._dialogue = Dialogue(tokenizer)

    def document(self, document: Document) -> list[Sample]:
        """Consecutive windows whose labels are all of the document's tokens and one end token; [] for empty text.

        The first window's context is the beginning-of-sequence token, or the end token of a model that has none.
        """
        return next(self.documents([document]))

    def documents(self, documents: Iterable[Document]) -> Iterator[list[Sample]]:
        """Each document's windows, in order; some are tokenised at once."""
        waiting = iter(documents)
        while some := [*islice(waiting, DOCUMENTS)]:
            encoded = self._backend().encode_batch([document.text for document in some], add_special_tokens=False)
            yield from map(self._windows, some, encoded)

    def _windows(self, document: Document, encoding: Any) -> list[Sample]:
        ids, tokenizer = encoding.ids, self.tokenizer
        if not ids:
            return []
        prefix = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
        stream = np.array([prefix, *ids, tokenizer.eos_token_id], dtype=np.int32)
        samples, said = [], 0
        for start in range(0, len(ids) + 1, self.sequence_length):
            tokens = stream[start : start + self.sequence_length + 1]
            last = start + len(tokens) - 1
            until = len(document.text) if last >= len(ids) else max(said, encoding.token_to_chars(last - 1)[1])
            size = len(document.text[said:until].encode())
            said = until
            weights = np.ones(len(tokens) - 1, dtype=np.float32)
            samples.append(Sample(tokens, weights, size, str(document.source), document.subset))
        return samples

    def conversation(self, conversation: Conversation) -> Sample | Dropped:
        """The conversation as the chat template renders it, or why it cannot be trained on."""
        return next(self.conversations([conversation]))

    def conversations(self, conversations: Iterable[Conversation]) -> Iterator[Sample | Dropped]:
        """Each conversation's sample or refusal, in order; many are tokenised at once."""
        waiting = iter(conversations)
        while some := [self._weighed(conversation) for conversation in islice(waiting, BATCH)]:
            yield from map(self.fitted, some, self.samples(some))

    def samples(self, conversations: Sequence[Conversation]) -> Iterator[Sample | Dropped]:
        """Each conversation's sample, of whatever length; all are tokenised at once."""
        said = [_said(conversation) for conversation in conversations]
        at_once = iter(self._dialogue.render_all([m for m, c in zip(said, conversations, strict=True) if not c.tools]))
        rendered = [
            self._rendered(c, messages, None if c.tools else next(at_once))
            for c, messages in zip(conversations, said, strict=True)
        ]
        samples = self._samples([found for found in rendered if isinstance(found, Rendered)])
        for found in rendered:
            yield found if isinstance(found, Dropped) else next(samples)

    def _weighed(self, conversation: Conversation) -> Conversation:
        if self.train_on != "last":
            return conversation
        last = max((i for i, m in enumerate(conversation.messages) if m.role == "assistant"), default=-1)
        messages = [
            msgspec.structs.replace(message, weight=message.weight if i == last else 0.0)
            for i, message in enumerate(conversation.messages)
        ]
        return msgspec.structs.replace(conversation, messages=tuple(messages))

    def fitted(
        self, conversation: Conversation, sample: Sample | Dropped, encode: Encode | None = None
    ) -> Sample | Dropped:
        """`sample`, or what truncation makes of it where it is too long; `encode` makes one of a shorter conversation."""
        if isinstance(sample, Dropped) or len(sample) <= self.sequence_length:
            return sample
        encode = encode or self._sample
        shorter = shorten(conversation, self.sequence_length, self.truncation, encode=encode, tokenizer=self.tokenizer)
        if shorter is None:
            tried = "" if self.truncation == "drop" else ", an answer with its headers does not"
            return Dropped(DropReason.TOO_LONG, f"{len(sample)} positions, {self.sequence_length} fit{tried}")
        self.cuts.update(shorter[1])
        return shorter[0]

    def _sample(self, conversation: Conversation) -> Sample | None:
        rendered = self._rendered(conversation, _said(conversation))
        sample = next(self._samples([rendered])) if isinstance(rendered, Rendered) else rendered
        return sample if isinstance(sample, Sample) else None

    def _rendered(
        self, conversation: Conversation, messages: Messages, marked: Marked | None = None
    ) -> Rendered | Dropped:
        answers = [message for message in conversation.messages if message.role == "assistant"]
        if not any(message.weight > 0 for message in answers):
            return Dropped(DropReason.NOTHING_TO_TRAIN, "no message of an assistant with a weight")
        tools = list(conversation.tools) or None
        try:
            text, marks = marked or self._dialogue.render(messages, tools)
            hidden = [name for name in _function_names(conversation) if name not in text]
            if hidden:
                return Dropped(DropReason.TOOLS_NOT_SHOWN, f"the function {hidden[0]}")
            spans = self._dialogue.spans(messages, text, marks, tools)
        except TemplateRefused as error:
            return Dropped(DropReason.TEMPLATE_REFUSED, str(error))
        except AnswerNotFound as error:
            return Dropped(DropReason.ANSWER_NOT_FOUND, str(error))
        return Rendered(conversation, text, spans, [message.weight for message in answers])

    def _samples(self, rendered: Sequence[Rendered]) -> Iterator[Sample | Dropped]:
        encoded = self._backend().encode_batch([found.text for found in rendered], add_special_tokens=False)
        yield from map(_sample_of, rendered, encoded)

    def _backend(self) -> Any:
        """The tokenizers library's tokenizer, without what a call before may have set: padding and truncation."""
        self.tokenizer("", add_special_tokens=False)
        return self.tokenizer.backend_tokenizer


def _sample_of(rendered: Rendered, encoding: Any) -> Sample | Dropped:
    """The tokens that begin inside an answer's span weigh; `encoding` is the tokenizers library's."""
    tokens = np.array(encoding.ids, dtype=np.int32)
    weights = np.zeros(len(tokens), dtype=np.float32)
    trained = False
    for span, weight in zip(rendered.spans, rendered.weights, strict=True):
        if weight > 0:
            first, end = token_range(encoding, span.start, span.end)
            weights[first:end] = weight
            trained = trained or end > max(first, 1)
    if not trained:
        return Dropped(DropReason.NOTHING_TO_TRAIN, "no token of an answer")
    conversation = rendered.conversation
    return Sample(
        tokens=tokens,
        weights=weights[1:],
        source_bytes=rendered.trained_bytes,
        source=str(conversation.source),
        subset=conversation.subset,
    )


def token_range(encoding: Any, start: int, end: int) -> tuple[int, int]:
    """Tokens [first, end) of an Encoding that begin within characters [start, end).

    Asked of the few tokens at the borders, since a list of all offsets takes as long as a third of the tokenizing.
    A token of blanks may have no width (some tokenizers trim offsets); at `start` it stands for what is before.
    """
    token_at, chars_of = encoding.char_to_token, encoding.token_to_chars
    first = next((token for at in range(start, end) if (token := token_at(at)) is not None), None)
    if first is None:
        return 0, 0
    while first > 0 and chars_of(first - 1)[0] > start:
        first -= 1
    while first < len(encoding) and chars_of(first)[0] < start:
        first += 1
    last = next(token for at in range(end - 1, start - 1, -1) if (token := token_at(at)) is not None)
    last = max(first, last + 1)
    while last < len(encoding) and chars_of(last)[0] < end:
        last += 1
    return first, last


def _said(conversation: Conversation) -> Messages:
    """The messages as a chat template reads them."""
    return [message.for_template() for message in conversation.messages]


def _function_names(conversation: Conversation) -> list[str]:
    """Names of all tools on offer and of all functions called."""
    called = [call for message in conversation.messages for call in message.fields.get("tool_calls", ())]
    return [str(entry["function"].get("name", "")) for entry in (*conversation.tools, *called)]
