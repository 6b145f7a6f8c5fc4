"""The parts of a row to messages: text, roles, function calls and tools, brought to one spelling.

Calls and tools become what chat templates read: `tool_calls: [{type, function: {name, arguments}}]` with arguments
as an object, and `tools: [{type, function: {…}}]`. Nothing else is added or taken away.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from cairn.data.layout import PLACEHOLDER, Each, Part, Split, Turn, kind_name
from cairn.data.paths import MISSING, StepError, value_at
from cairn.errors import DataError, did_you_mean
from cairn.records import Message, Source

Kind = TypeVar("Kind", str, list[Any])


def find(element: Any, path: str, source: Source, *, prefix: str = "") -> Any:
    """The value at `path`, or MISSING; a DataError where a step of the path fails."""
    try:
        return value_at(element, path)
    except StepError as error:
        raise DataError(f"field '{prefix}{path}': {error}", where=str(source)) from None


def find_kind(element: Any, path: str, kind: type[Kind], source: Source) -> Kind:
    """The value at `path`, a string or a list as `kind` says; a DataError says what was found in its place."""
    found = find(element, path, source)
    if not isinstance(found, kind):
        expected = "a list" if kind is list else "a string"
        raise DataError(f"field '{path}': expected {expected}, found {kind_name(found)}", where=str(source))
    return found


def _left_out(part: Each | Split, path: str, row: Any, source: Source) -> bool:
    found = find(row, path, source) if part.optional else None
    return part.optional and (found is MISSING or found is None)


def messages_of(parts: Sequence[Part], row: Any, source: Source) -> Iterator[Message]:
    """The messages of all parts, in order."""
    for part in parts:
        if isinstance(part, Turn):
            yield from _turn(part, row, "", source)
        elif isinstance(part, Each):
            yield from _each(part, row, source)
        else:
            yield from _split(part, row, source)


def _each(part: Each, row: Any, source: Source) -> Iterator[Message]:
    elements = [] if _left_out(part, part.each, row, source) else find_kind(row, part.each, list, source)
    if not elements and not part.optional:
        raise DataError(f"field '{part.each}': the list is empty", where=str(source))
    for index, element in enumerate(elements):
        turns = (part.turns[index % len(part.turns)],) if part.cycle else part.turns
        for turn in turns:
            yield from _turn(turn, element, f"{part.each}.{index}.", source)


def _split(part: Split, row: Any, source: Source) -> Iterator[Message]:
    if _left_out(part, part.split, row, source):
        return
    text = find_kind(row, part.split, str, source)
    marks = "|".join(re.escape(mark) for mark in sorted(part.marks, key=len, reverse=True))
    before, *pieces = re.split(f"({marks})", text)
    if _bare(before, part.drop):
        if part.before is None:
            shown = ", ".join(map(repr, part.marks))
            raise DataError(f"field '{part.split}': text stands before the first of {shown}", where=str(source))
        yield Message(part.before, _bare(before, part.drop))
    if not pieces and part.before is None:
        raise DataError(
            f"field '{part.split}': none of the marks {', '.join(map(repr, part.marks))}", where=str(source)
        )
    said = [(mark, _bare(text, part.drop, exact=part.exact)) for mark, text in zip(*[iter(pieces)] * 2, strict=True)]
    for mark, content in said[:-1] if said and not said[-1][1] else said:  # a text may end with the mark of a reply
        if not content:
            raise DataError(f"field '{part.split}': nothing is said behind {mark!r}", where=str(source))
        yield Message(part.marks[mark], content)


def _bare(text: str, drop: Sequence[str], *, exact: bool = False) -> str:
    for part in drop:
        text = text.replace(part, "")
    return text if exact else text.strip()


def _turn(turn: Turn, element: Any, prefix: str, source: Source) -> Iterator[Message]:
    text = _filled(turn, element, prefix, source) if turn.template else _joined(turn, element, prefix, source)
    text = text or turn.otherwise or ""
    if text or not turn.optional:
        yield build_message(turn, element, text, prefix=prefix, source=source)


def _joined(turn: Turn, element: Any, prefix: str, source: Source) -> str:
    texts = []
    for path in turn.content:
        required = path == turn.content[0] and not (turn.optional or turn.otherwise) and not _has_calls(turn, element)
        found = find(element, path, source, prefix=prefix)
        texts.append(plain_text(found, field=prefix + path, required=required, source=source))
    return turn.joined_by.join(text for text in texts if text)


def _filled(turn: Turn, element: Any, prefix: str, source: Source) -> str:
    paths = PLACEHOLDER.findall(str(turn.template))
    found = {path: find(element, path, source, prefix=prefix) for path in paths}
    if turn.optional and any(value is MISSING or value is None for value in found.values()):
        return ""
    texts = {p: plain_text(value, field=prefix + p, required=True, source=source) for p, value in found.items()}
    return PLACEHOLDER.sub(lambda match: texts[match[1]], str(turn.template))


def _has_calls(turn: Turn, element: Any) -> bool:
    path = turn.fields.get("tool_calls", "tool_calls" if "tool_calls" in turn.keep else "")
    found = value_at(element, path) if path else MISSING
    return found is not MISSING and bool(found)


def plain_text(found: Any, *, field: str, required: bool, source: Source) -> str:
    """A text, a number as text, or the joined text parts of OpenAI's list form; "" where an optional one is missing."""
    if isinstance(found, str):
        return found
    if isinstance(found, int | float) and not isinstance(found, bool):
        return str(found)
    if found is MISSING or found is None:
        if required:
            raise DataError(f"field '{field}': expected a string, found {kind_name(found)}", where=str(source))
        return ""
    if isinstance(found, list) and all(isinstance(part, dict) for part in found):
        return "".join(_part_text(part, field, source) for part in found)
    raise DataError(f"field '{field}': expected a string, found a {kind_name(found)}", where=str(source))


def _part_text(part: dict[str, Any], field: str, source: Source) -> str:
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    raise DataError(f"field '{field}': a part of type {part.get('type')!r} is not text", where=str(source))


def build_message(turn: Turn, element: Any, text: str, *, prefix: str, source: Source) -> Message:
    """One message from an element of a row."""
    fields = _fields(turn, element, prefix, source)
    if turn.role_at is None:
        assert turn.role is not None, "a turn has role or role_at"
        return Message(turn.role, text, _weight(turn, element, prefix, source), fields)
    name = find(element, turn.role_at, source, prefix=prefix)
    field = prefix + turn.role_at
    if not isinstance(name, str):
        raise DataError(f"field '{field}': expected a string, found {kind_name(name)}", where=str(source))
    if name not in turn.roles:
        raise DataError(f"field '{field}': unknown role '{name}'; {did_you_mean(name, turn.roles)}", where=str(source))
    if name in turn.calls:
        fields["tool_calls"] = _calls(_json(text, prefix + turn.content[0], source), prefix + turn.content[0], source)
        text = ""
    return Message(turn.roles[name], text, _weight(turn, element, prefix, source), fields)


def _fields(turn: Turn, element: Any, prefix: str, source: Source) -> dict[str, Any]:
    places = {key: key for key in turn.keep} | turn.fields
    found = {key: find(element, path, source, prefix=prefix) for key, path in places.items()}
    fields = {key: value for key, value in found.items() if value is not MISSING and value is not None}
    if "tool_calls" in fields:
        fields["tool_calls"] = _calls(fields["tool_calls"], f"{prefix}{places['tool_calls']}", source)
    return fields


def _weight(turn: Turn, element: Any, prefix: str, source: Source) -> float:
    found = find(element, turn.weight, source, prefix=prefix) if turn.weight else MISSING
    if found is MISSING or found is None:
        return 1.0
    if isinstance(found, (int, float)) and 0 <= found < float("inf"):
        return float(found)
    raise DataError(f"field '{prefix}{turn.weight}': a weight is a number from 0, found {found!r}", where=str(source))


def _json(text: str, field: str, source: Source) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"field '{field}': expected JSON ({error.msg})", where=str(source)) from None


def _calls(found: Any, field: str, source: Source) -> list[dict[str, Any]]:
    """One function call or a list of parallel ones, in OpenAI's spelling."""
    calls = found if isinstance(found, list) else [found]
    out = []
    for call in calls:
        function = call.get("function", call) if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise DataError(
                f"field '{field}': a call needs a name and arguments, found {call!r:.80}", where=str(source)
            )
        arguments = function.get("arguments", {})
        if isinstance(arguments, str):
            arguments = _json(arguments, f"{field}.arguments", source)
        identity = {"id": call["id"]} if "id" in call else {}
        out.append({**identity, "type": "function", "function": {"name": function["name"], "arguments": arguments}})
    return out


def parse_tools(found: Any, source: Source) -> tuple[dict[str, Any], ...]:
    """The tools on offer from a list or the JSON text of one; none where missing or empty."""
    if found is MISSING or found is None or found == "":
        return ()
    if isinstance(found, str):
        found = _json(found, "tools", source)
    if not isinstance(found, list) or not all(isinstance(tool, dict) for tool in found):
        raise DataError(f"field 'tools': expected a list of objects, found a {kind_name(found)}", where=str(source))
    return tuple(tool if "function" in tool else {"type": "function", "function": tool} for tool in found)
