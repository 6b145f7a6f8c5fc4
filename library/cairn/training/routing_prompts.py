"""What an adapter was trained to answer: the prompts of its own training data, to tell its users' from others'.

A prompt is the conversation up to its last answer, the beginning of the assistant's turn included, by the base model's
chat template: the very tokens that `POST /v1/chat/completions` makes of the same messages. Of a comparison or judgement
it is the prompt; of a document its first `MOST_TOKENS` tokens, as `POST /v1/completions` reads a text.

Which prompts are taken, and which of them are kept from learning, their hashes decide: for ever the same, a repeated
prompt once. Cost: reading the first few records of each file.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any

from cairn.adapters.routing.features import MOST_TOKENS
from cairn.config.data import Data
from cairn.data.datasets import data_files
from cairn.data.documents import AUTO, FormatChoice, read_records
from cairn.data.drops import Rejected
from cairn.data.plan import kind_eaten
from cairn.data.prompts import prompt_tokens
from cairn.data.rendering import TemplateRefused
from cairn.data.sources.files import resolve
from cairn.data.sources.location import Location
from cairn.errors import AdapterError, DataError, UserError
from cairn.records import KINDS, Comparison, Conversation, Document, Judgement, Message, Record
from cairn.store.store import Adapter
from cairn.training.folder import RUN

READ_FOR_ONE = 4
"""Records read of each file for every prompt wanted."""
FEWEST_PROMPTS = 10
DOCUMENT_CHARACTERS = 16 * MOST_TOKENS
"""Of a document these are tokenised, which is enough."""
EVALUATED, CALIBRATED = 0.2, 0.2
"""Shares of an adapter's prompts that the router is measured by, and that its threshold is chosen on."""

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class PromptSet:
    """The prompts of one adapter, by what they are for. `left_out`: records that gave none, by reason."""

    learned: tuple[Tokens, ...]
    calibrated: tuple[Tokens, ...]
    evaluated: tuple[Tokens, ...]
    left_out: dict[str, int]


@dataclass(frozen=True)
class _Files:
    """Locations with their formats, and the subsets that were trained on (none: all)."""

    found: tuple[tuple[Location, FormatChoice], ...]
    subsets: tuple[str, ...] = ()


def training_prompts(adapter: Adapter, tokenizer: Any, *, most: int, files: Sequence[str] = ()) -> PromptSet:
    """At most `most` prompts of the data that `adapter` was trained on, or of `files`.

    tokenizer: the base model's, with the template to use. Raises AdapterError where the data are gone, UserError where
    they hold too few prompts.
    """
    advice = f"name files with its prompts: --data {adapter.card.name}=FILE"
    left_out: Counter[str] = Counter()
    found: set[Tokens] = set()
    try:
        read = _named(files) if files else _of_recipe(adapter, advice)
        for location, format in read.found:
            records = read_records([location], format, subsets=read.subsets)
            found.update(_prompts(islice(records, READ_FOR_ONE * most), tokenizer, left_out))
    except DataError as error:
        raise AdapterError(
            f"the training data of {adapter.reference} cannot be read: {error.what}",
            where=error.where,
            next_step=advice,
        ) from error
    if len(found) < FEWEST_PROMPTS:
        reasons = "".join(f"; {reason}: {count}" for reason, count in left_out.items())
        raise UserError(
            f"{adapter.reference} has {len(found)} prompts, {FEWEST_PROMPTS} are needed at least{reasons}",
            where=", ".join(str(location) for location, _ in read.found),
            next_step=advice,
        )
    return _split(sorted(found, key=_hash)[:most], dict(left_out))


def _split(prompts: Sequence[Tokens], left_out: dict[str, int]) -> PromptSet:
    """By other bytes of the hash than they were taken by."""
    order = sorted(prompts, key=lambda prompt: _hash(prompt)[::-1])
    first, second = (max(1, round(share * len(order))) for share in (EVALUATED, CALIBRATED))
    return PromptSet(
        learned=tuple(order[first + second :]),
        calibrated=tuple(order[first : first + second]),
        evaluated=tuple(order[:first]),
        left_out=left_out,
    )


def _hash(prompt: Tokens) -> bytes:
    return blake2b(",".join(map(str, prompt)).encode(), digest_size=16).digest()


def _named(files: Sequence[str]) -> _Files:
    return _Files(tuple((location, AUTO) for location in resolve(files)))


def _of_recipe(adapter: Adapter, advice: str) -> _Files:
    """The files of the recipe that made the adapter."""
    try:
        recipe = json.loads((adapter.path / RUN).read_bytes())["recipe"]
        data, stage = Data.parse(recipe["data"]), recipe["stage"]
        documents = KINDS[kind_eaten(stage["name"], stage.get("source"))] is Document
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AdapterError(
            f"{adapter.reference} does not say what it was trained on ({type(error).__name__})",
            where=str(adapter.path / RUN),
            next_step=advice,
        ) from None
    return _Files(tuple((file.location, file.format) for file in data_files(data, documents=documents)), data.subsets)


def _prompts(records: Iterable[Record | Rejected], tokenizer: Any, left_out: Counter[str]) -> Iterator[Tokens]:
    for record in records:
        try:
            prompt = () if isinstance(record, Rejected) else _prompt(record, tokenizer)
        except TemplateRefused:
            left_out["the chat template refuses it, or there is none"] += 1
            continue
        if prompt:
            yield prompt
        else:
            left_out[str(record.reason) if isinstance(record, Rejected) else "no prompt"] += 1


def _prompt(record: Record, tokenizer: Any) -> Tokens:
    """Empty where nothing is asked."""
    if isinstance(record, Document):
        return tuple(tokenizer(record.text[:DOCUMENT_CHARACTERS])["input_ids"][:MOST_TOKENS])
    messages = _asked(record)
    if messages and not tokenizer.chat_template:
        raise TemplateRefused("there is none")
    return prompt_tokens(tokenizer, messages, record.tools) if messages else ()


def _asked(record: Conversation | Comparison | Judgement) -> tuple[Message, ...]:
    """What stands before the last answer; all of a conversation in which nobody answers yet."""
    if not isinstance(record, Conversation):
        return record.prompt
    answers = [place for place, message in enumerate(record.messages) if message.role == "assistant"]
    return record.messages[: answers[-1]] if answers else record.messages


def named_files(named: Sequence[str], adapters: Sequence[Adapter]) -> Mapping[str, Sequence[str]]:
    """NAME=FILE texts as reference → files. UserError for a name that is none of `adapters`."""
    found: dict[str, list[str]] = {adapter.reference: [] for adapter in adapters}
    for text in named:
        name, separator, file = text.partition("=")
        fitting = [adapter.reference for adapter in adapters if name in (adapter.reference, adapter.card.name)]
        if not separator or not file or not fitting:
            raise UserError(
                f"{text!r} names no file of {' or '.join(found)}", where="--data", next_step="write NAME=FILE"
            )
        for reference in fitting:
            found[reference].append(file)
    return found
