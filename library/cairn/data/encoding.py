"""Records to samples with the model's own tokenizer and chat template.

A document becomes consecutive windows and loses nothing. A conversation becomes one sample whose tokens are those of
`tokenizer.apply_chat_template`; only the assistant's tokens weigh, from the first of the answer through its end of
turn. What does not fit is dropped or cut by a named policy, with a reason, and a cut ends at an answer's token, so no
header is ever cut and no end of turn is invented.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from jinja2 import TemplateError

from cairn.data.answers import AnswerFinder, AnswerNotFound, Span
from cairn.data.drops import CutReason, Dropped, DropReason
from cairn.data.rows import Sample
from cairn.errors import ModelError
from cairn.records import Conversation, Document

Truncation = Literal["drop", "keep_start", "keep_end"]
GENERATION_MARK = re.compile(r"\{%-?\s*generation\s*-?%\}")


class Encoder:
    """`sequence_length` is the most positions of a sample. `cuts` counts what truncation took.

    `tokenizer` is a fast transformers tokenizer (its character offsets say which bytes a token stands for); a slow one
    is a ModelError, as is one without an end-of-sequence token.
    """

    def __init__(self, tokenizer: Any, sequence_length: int, truncation: Truncation = "drop") -> None:
        where = str(getattr(tokenizer, "name_or_path", ""))
        if not getattr(tokenizer, "is_fast", False):
            raise ModelError("the tokenizer gives no character offsets", where=where, next_step="add a tokenizer.json")
        if tokenizer.eos_token_id is None:
            raise ModelError("the tokenizer has no end-of-sequence token", where=where, next_step="set eos_token in it")
        self.tokenizer = tokenizer
        self.sequence_length = sequence_length
        self.truncation: Truncation = truncation
        self.cuts: Counter[CutReason] = Counter()
        self._finder: AnswerFinder | None = None

    def document(self, document: Document) -> list[Sample]:
        """Consecutive windows whose labels are all of the document's tokens and one end token; [] for empty text.

        The first window's context is the beginning-of-sequence token, or the end token of a model that has none.
        """
        tokenizer = self.tokenizer
        encoded = tokenizer(
            document.text,
            add_special_tokens=False,
            return_offsets_mapping=True,
            verbose=False,
            return_attention_mask=False,
        )
        ids = encoded["input_ids"]
        if not ids:
            return []
        prefix = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
        stream = np.array([prefix, *ids, tokenizer.eos_token_id], dtype=np.int32)
        ends = np.maximum.accumulate(np.array(encoded["offset_mapping"], dtype=np.int64)[:, 1])
        samples, said = [], 0
        for start in range(0, len(ids) + 1, self.sequence_length):
            tokens = stream[start : start + self.sequence_length + 1]
            last = start + len(tokens) - 1
            until = len(document.text) if last >= len(ids) else int(ends[last - 1])
            size = len(document.text[said:until].encode())
            said = max(said, until)
            weights = np.ones(len(tokens) - 1, dtype=np.float32)
            samples.append(Sample(tokens, weights, size, str(document.source), document.subset))
        return samples

    def conversation(self, conversation: Conversation) -> Sample | Dropped:
        """The conversation as the chat template renders it, or why it cannot be trained on."""
        if not any(m.role == "assistant" and m.weight > 0 for m in conversation.messages):
            return Dropped(DropReason.NOTHING_TO_TRAIN, "no message of an assistant with a weight")
        try:
            return self._fitted(conversation)
        except TemplateError as error:
            return Dropped(DropReason.TEMPLATE_REFUSED, str(error))
        except AnswerNotFound as error:
            return Dropped(DropReason.ANSWER_NOT_FOUND, str(error))

    def _fitted(self, conversation: Conversation) -> Sample | Dropped:
        sample = self._sample(conversation)
        if isinstance(sample, Dropped) or len(sample) <= self.sequence_length:
            return sample
        found = f"{len(sample)} positions, {self.sequence_length} fit"
        if self.truncation == "keep_start":
            return self._cut_end(sample) or Dropped(DropReason.TOO_LONG, f"{found}, and no answer begins within them")
        if self.truncation == "keep_end":
            return self._cut_turns(conversation) or Dropped(DropReason.TOO_LONG, f"{found}, the last exchange does not")
        return Dropped(DropReason.TOO_LONG, found)

    def _cut_end(self, sample: Sample) -> Sample | None:
        """The sample up to its last answer token that fits."""
        trained = np.flatnonzero(sample.weights[: self.sequence_length])
        if len(trained) == 0:
            return None
        length = int(trained[-1]) + 1
        share = float(np.count_nonzero(sample.weights[:length]) / np.count_nonzero(sample.weights))
        self.cuts[CutReason.ANSWER_END] += 1
        return Sample(
            sample.tokens[: length + 1],
            sample.weights[:length],
            round(sample.source_bytes * share),
            sample.source,
            sample.subset,
        )

    def _cut_turns(self, conversation: Conversation) -> Sample | None:
        """The system message and as many of the newest exchanges as fit."""
        messages = conversation.messages
        system = messages[:1] if messages[0].role == "system" else ()
        for at in (i for i, message in enumerate(messages) if message.role == "user" and i > len(system)):
            shorter = self._sample(_with_messages(conversation, (*system, *messages[at:])))
            if isinstance(shorter, Sample) and len(shorter) <= self.sequence_length:
                self.cuts[CutReason.OLDEST_TURNS] += 1
                return shorter
        return None

    def _sample(self, conversation: Conversation) -> Sample | Dropped:
        tools = list(conversation.tools) or None
        messages = [message.for_template() for message in conversation.messages]
        text = self._render(messages, tools=tools)
        hidden = [name for name in _function_names(conversation) if name not in text]
        if hidden:
            return Dropped(DropReason.TOOLS_NOT_SHOWN, f"the function {hidden[0]}")
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        weights = np.zeros(len(encoded["input_ids"]), dtype=np.float32)
        if GENERATION_MARK.search(str(self.tokenizer.get_chat_template(tools=tools))):
            size = self._weigh_marked(conversation, messages, tools, weights)
        else:
            size = self._weigh_found(conversation, messages, tools, text, encoded["offset_mapping"], weights)
        if not weights[1:].any():
            return Dropped(DropReason.NOTHING_TO_TRAIN, "no token of an answer")
        tokens = np.array(encoded["input_ids"], dtype=np.int32)
        return Sample(tokens, weights[1:].copy(), size, str(conversation.source), conversation.subset)

    def _render(self, messages: Sequence[dict[str, Any]], *, tools: Any = None, prompt: bool = False) -> str:
        return str(
            self.tokenizer.apply_chat_template(
                list(messages), tools=tools, tokenize=False, add_generation_prompt=prompt
            )
        )

    def _token_ends(self, text: str) -> set[int]:
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return {end for _, end in encoded["offset_mapping"]}

    def _weigh_found(
        self,
        conversation: Conversation,
        messages: Sequence[dict[str, Any]],
        tools: Any,
        text: str,
        offsets: Sequence[tuple[int, int]],
        weights: np.ndarray,
    ) -> int:
        """Weigh the tokens that begin inside an answer's span; returns the UTF-8 bytes of the trained answers."""
        if self._finder is None:
            self._finder = AnswerFinder.probe(lambda said, prompt: self._render(said, prompt=prompt), self._token_ends)
        finder = replace(self._finder, render=lambda said, prompt: self._render(said, tools=tools, prompt=prompt))
        answers = [message for message in conversation.messages if message.role == "assistant"]
        starts, ends = np.array(offsets, dtype=np.int64).T
        size = 0
        for message, span in zip(answers, finder.spans(messages, text), strict=True):
            weights[(starts >= span.start) & (starts < span.end) & (ends > starts)] = message.weight
            size += _answer_bytes(text, span) if message.weight > 0 else 0
        return size

    def _weigh_marked(
        self, conversation: Conversation, messages: Sequence[dict[str, Any]], tools: Any, weights: np.ndarray
    ) -> int:
        """Weigh what the template itself marks with `{% generation %}`, one run of tokens per answer."""
        encoded = self.tokenizer.apply_chat_template(
            list(messages), tools=tools, return_dict=True, return_assistant_tokens_mask=True
        )
        mask = np.array(encoded["assistant_masks"], dtype=np.int8)
        edges = np.flatnonzero(np.diff(mask, prepend=0, append=0))
        runs = list(zip(edges[::2], edges[1::2], strict=True))
        answers = [message for message in conversation.messages if message.role == "assistant"]
        wanted = {message.weight for message in answers}
        if len(runs) != len(answers) and len(wanted) > 1:
            raise AnswerNotFound(f"the template marks {len(runs)} answers, the conversation has {len(answers)}")
        for i, (start, end) in enumerate(runs):
            weights[start:end] = answers[i].weight if len(runs) == len(answers) else answers[0].weight
        return sum(len(message.content.strip().encode()) for message in answers if message.weight > 0)


def _answer_bytes(text: str, span: Span) -> int:
    return len(text[span.start : span.content_end].encode())


def _with_messages(conversation: Conversation, messages: tuple[Any, ...]) -> Conversation:
    return Conversation(
        conversation.source, messages, conversation.tools, conversation.answer, conversation.subset, conversation.id
    )


def _function_names(conversation: Conversation) -> list[str]:
    """Names of all tools on offer and of all functions called."""
    called = [call for message in conversation.messages for call in message.fields.get("tool_calls", ())]
    return [str(entry["function"].get("name", "")) for entry in (*conversation.tools, *called)]
