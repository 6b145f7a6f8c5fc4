"""Rows that compare or judge answers: pairs, scored and ranked answers, verdicts.

A ranking of n answers becomes a pair for every two that differ; its pairs share a group and weigh 1 together, so that
long rankings do not dominate. Answers that tie are no pair, and a row of nothing but ties is left out with that reason
(`NoPreference`), as is one that nobody has judged yet: it is no fault of the data. A score that is null is no score.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from cairn.data.drops import EmptyAnswer, NoPreference, NotJudged
from cairn.data.layout import Layout, Option, Scalar, Verdict, kind_name
from cairn.data.messages import find, find_kind, messages_of, plain_text
from cairn.data.paths import MISSING
from cairn.errors import DataError
from cairn.records import Comparison, Judgement, Message, Source

Messages = tuple[Message, ...]
Tools = tuple[dict[str, Any], ...]
YES, NO = ("true", "yes", "1"), ("false", "no", "0")
NO_NUMBER = ("", "N/A", "nan", "NaN")
"""How tables write a score that is not there."""


def comparisons(
    layout: Layout, row: Any, source: Source, labels: Mapping[str, str], tools: Tools
) -> Iterator[Comparison]:
    """The pairs of a row. LeftOut where no answer is the better one, DataError where a pair cannot be read."""
    for path, values in layout.ties.items():
        found = find(row, path, source)
        if any(same(found, value) for value in values):
            raise NoPreference(f"field '{path}': {found!r} is a tie", where=str(source))
    prompt = tuple(messages_of(layout.prompt, row, source))
    if layout.answers:
        pairs = _ranked(layout.answers, row, source)
        weight, group = 1 / len(pairs), str(source) if len(pairs) > 1 else ""
    else:
        chosen, rejected = (tuple(messages_of(parts, row, source)) for parts in (layout.chosen, layout.rejected))
        if chosen == rejected:
            raise NoPreference("both answers are the same", where=str(source))
        pairs, weight, group = [(chosen, rejected)], 1.0, ""
    margin = _number(row, layout.margin, source) if layout.margin else None
    margin = margin if isinstance(margin, float) else 0.0
    for chosen, rejected in pairs:
        asked, better, worse = _parted(prompt, chosen, rejected, source)
        yield Comparison(source, asked, better, worse, margin, weight, group, labels["subset"], labels["id"], tools)


def judgement(
    verdict: Verdict, messages: Messages, row: Any, source: Source, labels: Mapping[str, str], tools: Tools
) -> Judgement:
    """The last message, which must be the assistant's, and whether it is good."""
    if not messages or messages[-1].role != "assistant":
        raise DataError("a judged conversation ends with the assistant's answer", where=str(source))
    good = _good(verdict, row, source)
    prompt, answer = messages[:-1], messages[-1:]
    _check_prompt(prompt, source)
    if not _says_something(answer):
        raise EmptyAnswer("the judged answer is empty", where=str(source))
    return Judgement(source, prompt, answer, good, labels["subset"], labels["id"], tools)


def same(found: Any, value: Scalar) -> bool:
    """Whether a row says `value`, be it as itself or as the string that a table makes of it."""
    if isinstance(found, str) and not isinstance(value, str):
        return found.strip().lower() == str(value).lower()
    return bool(found == value)


def _parted(
    prompt: Messages, chosen: Messages, rejected: Messages, source: Source
) -> tuple[Messages, Messages, Messages]:
    """Prompt, chosen and rejected answer. What the answers begin with in common is the prompt where none is given;
    one that is given and stands in both answers too is taken off them.
    """
    if not prompt:
        prompt = chosen[: _common(chosen, rejected)]
    given = len(prompt)
    if chosen[:given] == prompt == rejected[:given]:
        chosen, rejected = chosen[given:], rejected[given:]
    for name, answer in (("chosen", chosen), ("rejected", rejected)):
        if not _says_something(answer):
            raise EmptyAnswer(f"the {name} answer is empty", where=str(source))
        if answer[0].role != "assistant":
            raise DataError(
                f"the {name} answer begins with a message of the {answer[0].role}: the prompts of the two answers differ",
                where=str(source),
            )
    _check_prompt(prompt, source)
    return prompt, chosen, rejected


def _check_prompt(prompt: Messages, source: Source) -> None:
    """A prompt asks for an answer: it is there, and the assistant has not answered it yet."""
    if not any(message.content.strip() for message in prompt):
        raise DataError("there is no prompt", where=str(source))
    if prompt[-1].role == "assistant":
        raise DataError("the prompt ends with the assistant's message", where=str(source))


def _says_something(answer: Messages) -> bool:
    """Whether there is an assistant's message, and none that is empty."""
    own = [message for message in answer if message.role == "assistant"]
    return bool(own) and all(message.content.strip() or "tool_calls" in message.fields for message in own)


def _ranked(options: Sequence[Option], row: Any, source: Source) -> list[tuple[Messages, Messages]]:
    """(better, worse) for every two answers that differ, in their score and in what they say."""
    scores = [found for option in options for found in _scored(option, row, source)]
    if len(scores) > 1 and all(score is MISSING for _, score in scores):
        places = ", ".join(f"'{option.score or option.rank}'" for option in options)
        raise DataError(f"none of the {len(scores)} answers has a number at {places}", where=str(source))
    if all(option.wins for option in options) and not any(score for _, score in scores):
        raise _undecided(options[0].wins, row, source)
    answers = [(answer, score) for answer, score in scores if score is not MISSING and score is not None]
    if scores and not answers:
        raise NotJudged(f"none of the {len(scores)} answers has a score", where=str(source))
    pairs = [
        (a, b) if of_a > of_b else (b, a)
        for (a, of_a), (b, of_b) in combinations(answers, 2)
        if of_a != of_b and a != b
    ]
    if not pairs:
        raise NoPreference(f"of {len(scores)} answers, {len(answers)} with a score, none is better", where=str(source))
    return pairs


def _undecided(wins: Mapping[str, Scalar], row: Any, source: Source) -> DataError:
    found = {path: find(row, path, source) for path in wins}
    shown = ", ".join(
        f"'{path}': {kind_name(v) if v is MISSING or v is None else repr(v)}" for path, v in found.items()
    )
    if all(value is None for value in found.values()):
        return NotJudged(f"field {shown}", where=str(source))
    return DataError(f"field {shown} says neither which answer is better nor that they tie", where=str(source))


def _scored(option: Option, row: Any, source: Source) -> Iterator[tuple[Messages, Any]]:
    """(answer, score) of the option's answers, more is better; None for a score that is null."""
    elements = find_kind(row, option.each, list, source) if option.each else [row]
    for index, element in enumerate(elements):
        prefix = f"{option.each}.{index}." if option.each else ""
        score = _score(option, element, row, source)
        yield () if score is None else _answer(option, element, prefix, source), score


def _answer(option: Option, element: Any, prefix: str, source: Source) -> Messages:
    if option.messages:
        return tuple(messages_of(option.messages, element, source))
    texts = [
        plain_text(find(element, path, source, prefix=prefix), field=prefix + path, required=True, source=source)
        for path in option.content
    ]
    return (Message("assistant", "\n".join(filter(None, texts))),)


def _score(option: Option, element: Any, row: Any, source: Source) -> Any:
    if option.wins:
        return float(all(same(find(row, path, source), value) for path, value in option.wins.items()))
    if option.score is not None:
        return _number(element, option.score, source)
    rank = _number(element, str(option.rank), source)
    return rank if rank is MISSING or rank is None else -rank


def _number(element: Any, path: str, source: Source) -> Any:
    """A number, None where it is null or written as missing, MISSING where nothing is there."""
    found = find(element, path, source)
    if found is MISSING or found is None or (isinstance(found, str) and found.strip() in NO_NUMBER):
        return None if isinstance(found, str) else found
    try:
        number = float(found)
    except (TypeError, ValueError):
        raise DataError(f"field '{path}': expected a number, found {found!r:.60}", where=str(source)) from None
    return None if math.isnan(number) else number


def _good(verdict: Verdict, row: Any, source: Source) -> bool:
    found = find(row, verdict.at, source)
    if found is None or (found is not MISSING and found == ""):
        raise NotJudged(f"field '{verdict.at}': {kind_name(found)}", where=str(source))
    if verdict.least is not None:
        number = _number(row, verdict.at, source)
        if isinstance(number, float):
            return number >= verdict.least
    elif verdict.values:
        if str(found) in verdict.values:
            return verdict.values[str(found)]
    elif str(found).lower() in YES + NO:
        return str(found).lower() in YES
    expected = " or ".join(verdict.values) or ("a number" if verdict.least is not None else "true or false")
    shown = kind_name(found) if found is MISSING else repr(found)[:60]
    raise DataError(f"field '{verdict.at}': expected {expected}, found {shown}", where=str(source))


def _common(one: Messages, other: Messages) -> int:
    """How many messages both begin with."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
