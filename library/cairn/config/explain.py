"""Pydantic's findings in the recipe's own words: path, value, what is wrong, what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from cairn.config.choice import Choice
from cairn.config.section import Section
from cairn.errors import Problem, did_you_mean


def explain(error: ValidationError, section: type[Section], *, prefix: str) -> Iterator[Problem]:
    """One Problem per finding; of a value that may be of several kinds those of the kind that it looks like."""
    findings = [(found, *_place(section, found["loc"])) for found in error.errors(include_url=False)]
    mappings = {tuple(location) for found, location, _ in findings if isinstance(found["input"], dict)}
    for found, location, choice in findings:
        if choice is not None:
            at, is_mapping = choice
            if is_mapping != (tuple(location[:at]) in mappings):
                continue
        path = ".".join([prefix, *location])
        if found["type"] == "extra_forbidden":
            yield Problem(
                path, found["input"], "there is no such key", did_you_mean(location[-1], section.model_fields)
            )
        elif found["type"] == "missing":
            yield Problem(path, "(missing)", "this key is needed", _describe(section.model_fields.get(location[0])))
        else:
            yield Problem(
                path, found["input"], found["msg"].removeprefix("Value error, "), _advice(found, section, location)
            )


def _place(section: type[Section], loc: Sequence[str | int]) -> tuple[list[str], tuple[int, bool] | None]:
    """The dotted place of a finding without pydantic's words for the kinds that a value may be of.

    Where there was such a choice: how long the place of that value is, and whether the kind is a mapping.
    """
    place: list[str] = []
    choice = None
    kind: Any = section
    for part in loc:
        kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
        if get_origin(kind) in (Union, UnionType):
            kinds = [get_args(k)[0] if get_origin(k) is Annotated else k for k in get_args(kind) if k is not NoneType]
            if len(kinds) > 1:
                kind = next((k for k in kinds if getattr(k, "__name__", "") in str(part)), None)
                choice = (len(place), isinstance(kind, type) and issubclass(kind, Section))
                continue
            kind = kinds[0]
        place.append(str(part))
        kind = _inner(kind, str(part))
    return place, choice


def _inner(kind: Any, part: str) -> Any:
    if isinstance(kind, type) and issubclass(kind, Section):
        field = kind.model_fields.get(part)
        return field.annotation if field is not None else None
    inner = get_args(kind)
    return inner[-1] if get_origin(kind) is dict else inner[0] if inner else None


def _advice(found: Any, section: type[Section], location: list[str]) -> str:
    expected = (found.get("ctx") or {}).get("expected")
    if found["type"] == "literal_error" and isinstance(found["input"], str):
        choices = [choice.strip(" '") for choice in str(expected).replace(" or ", ", ").split(",")]
        return did_you_mean(found["input"], choices)
    return _describe(section.model_fields.get(location[0]) if location else None)


def _describe(field: FieldInfo | None) -> str:
    if field is None:
        return "see the table of recipe keys in the README"
    return f"give {type_name(field.annotation)}: {field.description or 'see the README'}"


def type_name(annotation: Any) -> str:
    """A type as a person reads it: `int`, `list of str`, `fp32 | bf16`, `str or mapping`."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_name(inner[0])
    if origin is Literal:
        return " | ".join(map(str, inner))
    if origin in (Union, UnionType):
        return " or ".join(map(type_name, inner))
    if origin is tuple:
        return f"list of {type_name(inner[0])}"
    if annotation is NoneType:
        return "none"
    if annotation is Choice:
        return "name or mapping"
    if origin is dict or (isinstance(annotation, type) and issubclass(annotation, Section)):
        return "mapping"
    return str(getattr(annotation, "__name__", annotation))
