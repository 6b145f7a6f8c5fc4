"""Rows that compare or judge answers: pairs, scored and ranked answers, verdicts.

A ranking of n answers becomes a pair for every two that differ; its pairs share a group and weigh 1 together, so that
long rankings do not dominate. Answers that tie are no pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from cairn.data.layout import Layout, Option, Verdict, kind_name
from cairn.data.messages import find, messages_of, plain_text
from cairn.data.paths import MISSING
from cairn.errors import DataError
from cairn.records import Comparison, Judgement, Message, Source

Messages = tuple[Message, ...]
YES, NO = ("true", "yes", "1"), ("false", "no", "0")


def comparisons(layout: Layout, row: Any, source: Source, labels: Mapping[str, str]) -> Iterator[Comparison]:
    """The pairs of a row. DataError where no answer is better than another, or an answer says nothing."""
    prompt = tuple(messages_of(layout.prompt, row, source))
    if layout.answers:
        yield from _ranked(layout.answers, prompt, row, source, labels)
        return
    chosen, rejected = (tuple(messages_of(parts, row, source)) for parts in (layout.chosen, layout.rejected))
    shared = len(prompt)
    if not layout.prompt:
        shared = _common(chosen, rejected)
        prompt = chosen[:shared]
        chosen, rejected = chosen[shared:], rejected[shared:]
    for name, answer in (("chosen", chosen), ("rejected", rejected)):
        if not any(message.role == "assistant" for message in answer):
            raise DataError(f"the {name} answer is empty or the same as the other", where=str(source))
    margin = _number(row, layout.margin, source) if layout.margin else None
    yield Comparison(source, prompt, chosen, rejected, margin or 0.0, subset=labels["subset"], id=labels["id"])


def judgement(verdict: Verdict, messages: Messages, row: Any, source: Source, labels: Mapping[str, str]) -> Judgement:
    """The last message, which must be the assistant's, and whether it is good."""
    if not messages or messages[-1].role != "assistant":
        raise DataError("a judged conversation ends with the assistant's answer", where=str(source))
    return Judgement(source, messages[:-1], messages[-1:], _good(verdict, row, source), **labels)


def _ranked(
    options: Sequence[Option], prompt: Messages, row: Any, source: Source, labels: Mapping[str, str]
) -> Iterator[Comparison]:
    scored = [found for option in options for found in _scored(option, row, source)]
    pairs = [(a, b) if a[1] > b[1] else (b, a) for a, b in combinations(scored, 2) if a[1] != b[1]]
    if not pairs:
        raise DataError(f"none of the {len(scored)} scored answers is better than another", where=str(source))
    group = labels["id"] or str(source)
    for (better, _), (worse, _) in pairs:
        chosen, rejected = (Message("assistant", better),), (Message("assistant", worse),)
        yield Comparison(source, prompt, chosen, rejected, 0.0, 1 / len(pairs), group, labels["subset"], labels["id"])


def _scored(option: Option, row: Any, source: Source) -> Iterator[tuple[str, float]]:
    """(text, score) of the option's answers; those without a score are left out."""
    elements = find(row, option.each, source) if option.each else [row]
    if not isinstance(elements, list):
        raise DataError(f"field '{option.each}': expected a list, found {kind_name(elements)}", where=str(source))
    for index, element in enumerate(elements):
        prefix = f"{option.each}.{index}." if option.each else ""
        score = _score(option, element, row, source)
        if score is not None:
            found = [find(element, path, source, prefix=prefix) for path in option.content]
            texts = [
                plain_text(text, field=prefix + path, required=True, source=source)
                for path, text in zip(option.content, found, strict=True)
            ]
            yield "\n".join(filter(None, texts)), score


def _score(option: Option, element: Any, row: Any, source: Source) -> float | None:
    if option.wins:
        return float(all(find(row, path, source) == value for path, value in option.wins.items()))
    if option.score is not None:
        return _number(element, option.score, source)
    assert option.rank is not None, "an option has a score, a rank, or wins"
    rank = _number(element, option.rank, source)
    return None if rank is None else -rank


def _number(element: Any, path: str, source: Source) -> float | None:
    found = find(element, path, source)
    if found is MISSING or found is None or found in ("", "N/A"):
        return None
    try:
        return float(found)
    except (TypeError, ValueError):
        raise DataError(f"field '{path}': expected a number, found {found!r:.60}", where=str(source)) from None


def _good(verdict: Verdict, row: Any, source: Source) -> bool:
    found = find(row, verdict.at, source)
    if verdict.least is not None:
        number = _number(row, verdict.at, source)
        if number is not None:
            return number >= verdict.least
    elif verdict.values:
        if str(found) in verdict.values:
            return verdict.values[str(found)]
    elif str(found).lower() in YES + NO:
        return str(found).lower() in YES
    expected = " or ".join(verdict.values) or ("a number" if verdict.least is not None else "true or false")
    shown = kind_name(found) if found is MISSING or found is None else repr(found)[:60]
    raise DataError(f"field '{verdict.at}': expected {expected}, found {shown}", where=str(source))


def _common(one: Messages, other: Messages) -> int:
    """How many messages both begin with."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
