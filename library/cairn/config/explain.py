"""Pydantic's findings in the recipe's own words: path, value, what is wrong, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from cairn.config.choice import Choice
from cairn.config.section import Section
from cairn.errors import Problem, did_you_mean


def explain(error: ValidationError, section: type[Section], *, prefix: str) -> Iterator[Problem]:
    """One Problem per finding."""
    for found in error.errors(include_url=False):
        location = [str(part) for part in found["loc"]]
        path = ".".join([prefix, *location])
        if found["type"] == "extra_forbidden":
            yield Problem(
                path, found["input"], "there is no such key", did_you_mean(location[-1], section.model_fields)
            )
        elif found["type"] == "missing":
            yield Problem(path, "(missing)", "this key is needed", _describe(section.model_fields.get(location[0])))
        else:
            yield Problem(path, found["input"], found["msg"], _advice(found, section, location))


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
