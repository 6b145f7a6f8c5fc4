"""Rows that compare or judge answers: pairs, scored and ranked answers, verdicts.

A ranking of n answers becomes a pair for every two that differ; its pairs share a group and weigh 1 together, so that
long rankings do not dominate. Answers that tie are no pair, and a row of nothing but ties is left out with that reason
(`NoPreference`), as is one that nobody has judged yet: it is no fault of the data. A score that is null is no score.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

from cairn.data.drops import EmptyAnswer, NoPreference, NotJudged
from cairn.data.layout import Layout, Option, Part, Scalar, Verdict, kind_name
from cairn.data.messages import Messages, plain_text, reader
from cairn.data.paths import MISSING, FieldError, Getter, getter, value_at
from cairn.errors import DataError
from cairn.records import Comparison, Judgement, Message, Record, Source

Tools = tuple[dict[str, Any], ...]
Pair = tuple[Messages, Messages]
ReadPairs = Callable[[Any, Source], list[Pair]]
Answers = list[tuple[Messages, Any]]
"""Answers with their scores: more is better, None where it is null, MISSING where there is none."""

YES, NO = ("true", "yes", "1"), ("false", "no", "0")
NO_NUMBER = ("", "N/A", "nan", "NaN")
"""How tables write a score that is not there."""


def comparing(layout: Layout) -> Callable[[Any, Source, Tools, str, str], list[Record]]:
    """What reads the pairs of a row, with its tools, subset and id. LeftOut where no answer is the better one, FieldError
    or DataError where a pair cannot be read.
    """
    ties = [(path, getter(path), values) for path, values in layout.ties.items()]
    prompt_of, margin_of = reader(layout.prompt), _number(layout.margin) if layout.margin else lambda _: None
    pairs_of = _ranked(layout.answers) if layout.answers else _named(reader(layout.chosen), reader(layout.rejected))

    def read(row: Any, source: Source, tools: Tools, subset: str, id: str) -> list[Record]:
        for path, find, values in ties:
            found = find(row)
            if any(same(found, value) for value in values):
                raise NoPreference(f"field '{path}': {found!r} is a tie", where=str(source))
        prompt = prompt_of(row)
        pairs = pairs_of(row, source)
        weight, group = 1 / len(pairs), str(source) if len(pairs) > 1 else ""
        margin = margin_of(row)
        margin = margin if isinstance(margin, float) else 0.0
        whole = [_parted(prompt, *pair, source) for pair in pairs]
        return [Comparison(source, *parts, margin, weight, group, subset, id, tools) for parts in whole]

    return read


def judging(verdict: Verdict, parts: Sequence[Part]) -> Callable[[Any, Source, Tools, str, str], list[Record]]:
    """What reads a row's last message, which must be the assistant's, and whether it is good."""
    messages_of, good_of = reader(parts), _good(verdict)

    def read(row: Any, source: Source, tools: Tools, subset: str, id: str) -> list[Record]:
        messages = messages_of(row)
        if not messages or messages[-1].role != "assistant":
            raise DataError("a judged conversation ends with the assistant's answer", where=str(source))
        good = good_of(row, source)
        prompt, answer = messages[:-1], messages[-1:]
        _check_prompt(prompt, source)
        if not _says_something(answer):
            raise EmptyAnswer("the judged answer is empty", where=str(source))
        return [Judgement(source, prompt, answer, good, subset, id, tools)]

    return read


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


def _named(chosen_of: Callable[[Any], Messages], rejected_of: Callable[[Any], Messages]) -> ReadPairs:
    """The one pair of a row that says which answer is the better one."""

    def read(row: Any, source: Source) -> list[Pair]:
        chosen, rejected = chosen_of(row), rejected_of(row)
        if chosen == rejected:
            raise NoPreference("both answers are the same", where=str(source))
        return [(chosen, rejected)]

    return read


def _ranked(options: Sequence[Option]) -> ReadPairs:
    """(better, worse) for every two answers that differ, in their score and in what they say."""
    reads = [_scored(option) for option in options]
    undecided = _undecided(options[0].wins) if all(option.wins for option in options) else None

    def read(row: Any, source: Source) -> list[Pair]:
        scores = [found for each in reads for found in each(row)]
        if len(scores) > 1 and all(score is MISSING for _, score in scores):
            places = ", ".join(f"'{option.score or option.rank}'" for option in options)
            raise DataError(f"none of the {len(scores)} answers has a number at {places}", where=str(source))
        if undecided is not None and not any(score for _, score in scores):
            raise undecided(row, source)
        answers = [(answer, score) for answer, score in scores if score is not MISSING and score is not None]
        if scores and not answers:
            raise NotJudged(f"none of the {len(scores)} answers has a score", where=str(source))
        pairs = [
            (a, b) if of_a > of_b else (b, a)
            for (a, of_a), (b, of_b) in combinations(answers, 2)
            if of_a != of_b and a != b
        ]
        if not pairs:
            told = f"of {len(scores)} answers, {len(answers)} with a score, none is better"
            raise NoPreference(told, where=str(source))
        return pairs

    return read


def _undecided(wins: Mapping[str, Scalar]) -> Callable[[Any, Source], DataError]:
    """The error for a row in which no answer wins."""

    def error(row: Any, source: Source) -> DataError:
        found = {path: value_at(row, path) for path in wins}
        shown = ", ".join(
            f"'{path}': {kind_name(v) if v is MISSING or v is None else repr(v)}" for path, v in found.items()
        )
        if all(value is None for value in found.values()):
            return NotJudged(f"field {shown}", where=str(source))
        return DataError(f"field {shown} says neither which answer is better nor that they tie", where=str(source))

    return error


def _scored(option: Option) -> Callable[[Any], Answers]:
    """The option's answers with their scores; an answer whose score is null is not read."""
    answer_of, score_of, path = _answer(option), _score(option), option.each
    if path is None:
        return lambda row: [(() if (score := score_of(row, row)) is None else answer_of(row), score)]
    find = getter(path)

    def read(row: Any) -> Answers:
        elements = find(row)
        if not isinstance(elements, list):
            raise FieldError(path, f"expected a list, found {kind_name(elements)}")
        found = []
        for index, element in enumerate(elements):
            score = score_of(element, row)
            try:
                found.append((() if score is None else answer_of(element), score))
            except FieldError as error:
                raise error if option.messages else error.within(f"{path}.{index}.") from None
        return found

    return read


def _answer(option: Option) -> Callable[[Any], Messages]:
    if option.messages:
        return reader(option.messages)
    places = [(path, getter(path)) for path in option.content]

    def read(element: Any) -> Messages:
        texts = [plain_text(find(element), path, required=True) for path, find in places]
        return (Message("assistant", "\n".join(filter(None, texts))),)

    return read


def _score(option: Option) -> Callable[[Any, Any], Any]:
    """(element, row) → how good the element's answer is."""
    if option.wins:
        wins = [(getter(path), value) for path, value in option.wins.items()]
        return lambda _, row: float(all(same(find(row), value) for find, value in wins))
    if option.score is not None:
        number = _number(option.score)
        return lambda element, _: number(element)
    rank = _number(str(option.rank))

    def read(element: Any, _: Any) -> Any:
        found = rank(element)
        return found if found is MISSING or found is None else -found

    return read


def _number(path: str) -> Getter:
    """A number, None where it is null or written as missing, MISSING where nothing is there."""
    find = getter(path)

    def read(element: Any) -> Any:
        found = find(element)
        if found is MISSING or found is None or (isinstance(found, str) and found.strip() in NO_NUMBER):
            return None if isinstance(found, str) else found
        try:
            number = float(found)
        except (TypeError, ValueError):
            raise FieldError(path, f"expected a number, found {found!r:.60}") from None
        return None if math.isnan(number) else number

    return read


def _good(verdict: Verdict) -> Callable[[Any, Source], bool]:
    find, number_of = getter(verdict.at), _number(verdict.at)

    def read(row: Any, source: Source) -> bool:
        found = find(row)
        if found is None or (found is not MISSING and found == ""):
            raise NotJudged(f"field '{verdict.at}': {kind_name(found)}", where=str(source))
        if verdict.least is not None:
            number = number_of(row)
            if isinstance(number, float):
                return number >= verdict.least
        elif verdict.values:
            if str(found) in verdict.values:
                return verdict.values[str(found)]
        elif str(found).lower() in YES + NO:
            return str(found).lower() in YES
        expected = " or ".join(verdict.values) or ("a number" if verdict.least is not None else "true or false")
        shown = kind_name(found) if found is MISSING else repr(found)[:60]
        raise FieldError(verdict.at, f"expected {expected}, found {shown}")

    return read


def _common(one: Messages, other: Messages) -> int:
    """How many messages both begin with."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
